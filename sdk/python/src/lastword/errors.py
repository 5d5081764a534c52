"""What goes wrong, by who has to act: the caller, a human, or nobody but time."""

from __future__ import annotations

from typing import Any, cast

from .wire import ApprovalView, Problem
from .words import denied


class LastwordError(Exception):
    """Any error of this package."""


class Disconnected(LastwordError):
    """The connection broke before the reply came. Whether the call was carried out isn't known."""


class NotDeterministic(LastwordError):
    """A handler that runs again asked for something else than the first time, at the same place."""


class Refused(LastwordError):
    """The broker refused a call."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem['detail']} ({problem['code']})")
        self.problem = problem
        self.code: str = problem["code"]
        """The stable code, such as `depth_cap`."""
        self.rule = problem["rule"]
        """The rule that the code enforces, such as `D2`."""
        self.status = problem["status"]
        self.hint = problem["hint"]
        """What to do instead, in one sentence."""
        self.lift = problem.get("lift")
        """The step by which a human lifts it, if there is one."""
        wait = problem.get("retry_after_ms")
        self.retry_after = None if wait is None else wait / 1000
        """Seconds after which a retry may succeed; `None` if waiting doesn't help."""

    def model_hint(self) -> str:
        """The refusal as a tool result for a model: what was wrong, and what to do."""
        return f"Refused ({self.code}): {self.problem['detail']}. {self.hint}"


class Rejected(LastwordError):
    """A held call may not be made: a human said no, or nobody decided in time."""

    def __init__(self, approval: ApprovalView) -> None:
        self.approval = approval
        self.state: str = approval["state"]
        """`rejected`, `expired`, `ignored` or `withdrawn`."""
        self.comment = approval.get("comment")
        """What the human wrote for the agent."""
        super().__init__(f"{approval['tool']}: {self.state}" + (f": {self.comment}" if self.comment else ""))

    def model_hint(self) -> str:
        """The decision as a tool result for a model: the human's comment is inside a boundary."""
        return denied(self.approval)


def refused(problem: Any) -> Refused:
    """The refusal that a problem document describes."""
    return Refused(cast(Problem, problem))

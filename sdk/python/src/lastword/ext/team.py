"""What the adapters share: the turn that a model's tools belong to, and the team as its tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..errors import LastwordError, Refused, Rejected
from ..keys import ByContent, Keys
from ..turn import Approved, Turn
from ..words import quoted

_turn: ContextVar[Turn] = ContextVar("lastword_turn")


def current_turn() -> Turn:
    """The turn in which a tool is called, for tools that ask, escalate or claim themselves."""
    try:
        return _turn.get()
    except LookupError:
        raise LastwordError("outside a turn: the agent is run by `serve`") from None


@contextlib.contextmanager
def serving(turn: Turn, keys: Keys | None = None) -> Generator[None]:
    """Makes the turn that of all tools within. A model decides there, so its calls are known by their content."""
    turn.keys = keys or ByContent()
    before = _turn.set(turn)
    try:
        yield
    finally:
        _turn.reset(before)


def hint(error: Refused | Rejected) -> str:
    """What the model is told instead of a result."""
    return error.model_hint()


async def ask_agent(to: str, text: str) -> str:
    """Asks another agent of the team and returns its answer.

    Args:
        to: The agent's name, or #ACTION for one that offers the action.
        text: What it is to do or to answer. It knows nothing else of this task.
    """
    try:
        reply = await current_turn().ask(to, text, action=to[1:] if to.startswith("#") else None)
    except Refused as refusal:
        return hint(refusal)
    return quoted(reply.message)


async def list_agents() -> str:
    """Lists the other agents of the team, with the actions that they offer."""
    return json.dumps([{"name": one["name"], "actions": one["actions"]} for one in await current_turn().agents()])


@dataclass(frozen=True)
class Denied:
    """A call that may not be made."""

    text: str
    """What the model is told instead of a result."""
    instructed: bool = False
    """Whether a human said what to do instead."""


async def held(turn: Turn, tool: str, arguments: Any) -> Approved | Denied:
    """Holds a call until it is decided."""
    reason = None
    while True:
        try:
            approved = await turn.approve(tool, arguments, reason=reason)
        except (Refused, Rejected) as error:
            by_human = isinstance(error, Rejected) and error.approval.get("decision") == "respond"
            return Denied(hint(error), by_human)
        if not approved.repeated:
            return approved
        # An approval is for one call: a human decides whether it is made again.
        used = approved.approval["id"]
        reason = f"An earlier run of this task was allowed this call by {used}, and may have made it already."


async def together(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Waits for all, so that a human sees them beside each other. The first failure ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def only(approved: Approved) -> str:
    """What the model is told of an edited call that the framework can't make."""
    return f"Not made: allowed only with these arguments, so ask for it again: {json.dumps(approved.arguments)}"


class Meter:
    """Counts what the framework says that a run used, each token once."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._seen = (0, 0)

    def response(self, model: str | None, input_tokens: int, output_tokens: int) -> None:
        """One response of a model."""
        self._seen = (self._seen[0] + input_tokens, self._seen[1] + output_tokens)
        self._turn.spent(model=model, input_tokens=input_tokens, output_tokens=output_tokens)

    def total(self, input_tokens: int, output_tokens: int) -> None:
        """The framework's own total, with what inner runs used: the rest of it is counted."""
        more = (max(0, input_tokens - self._seen[0]), max(0, output_tokens - self._seen[1]))
        if any(more):
            self.response(None, *more)


def answer(output: Any) -> Any:
    """What a framework's agent returned as an answer: a text, or a payload."""
    return output.model_dump(mode="json") if hasattr(output, "model_dump") else output

"""Pydantic AI: an agent as an agent of the team, its deferred approvals held by the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RunUsage

from .. import words
from ..agent import Agent, Answer
from ..errors import Refused, Rejected
from ..turn import Turn
from . import team
from .team import current_turn, hint

__all__ = ["Held", "ask_agent", "current_turn", "hint", "list_agents", "serve"]

ask_agent = Tool[Any](team.ask_agent, takes_ctx=False)
list_agents = Tool[Any](team.list_agents, takes_ctx=False)


def serve(
    agent: Agent,
    model_agent: ModelAgent[Any, Any],
    action: str | None = None,
    *,
    prompt: Callable[[Turn], Any] = lambda turn: words.prompt(turn.message),
    **options: Any,
) -> None:
    """Registers the agent as the handler of requests with this action; without one, of all others.

    `options` are those of `model_agent.run`, such as `deps`.
    """

    @agent.on_request(action)
    async def handle(turn: Turn) -> Any:  # pyright: ignore[reportUnusedFunction]
        usage, meter = RunUsage(), team.Meter(turn)
        more: dict[str, Any] = {
            **options,
            "usage": usage,
            "capabilities": [*options.get("capabilities", ()), Held(meter)],
        }
        with team.serving(turn):
            try:
                result = await model_agent.run(prompt(turn), **more)
            finally:
                meter.total(usage.input_tokens, usage.output_tokens)
        if isinstance(result.output, DeferredToolRequests):
            left = ", ".join(call.tool_name for call in [*result.output.calls, *result.output.approvals])
            return Answer(status="failed", reason=f"nothing makes these deferred calls: {left}")
        return team.answer(result.output)


@dataclass
class Held(AbstractCapability[Any]):
    """Holds calls that need an approval, and makes refusals tool results. `serve` gives it to its agent; give it to
    agents that its tools run."""

    meter: team.Meter | None = None

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        if self.meter:
            self.meter.response(response.model_name, response.usage.input_tokens, response.usage.output_tokens)
        return response

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Exception
    ) -> Any:
        if isinstance(error, Refused | Rejected):
            return hint(error)
        raise error

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        decided = await team.together(*(_decision(call) for call in requests.approvals))
        ids = [call.tool_call_id for call in requests.approvals]
        return DeferredToolResults(approvals=dict(zip(ids, decided, strict=True)))


async def _decision(call: ToolCallPart) -> ToolApproved | ToolDenied:
    arguments = call.args_as_dict()
    decision = await team.held(current_turn(), call.tool_name, arguments)
    if isinstance(decision, team.Denied):
        return ToolDenied(decision.text)
    return ToolApproved(override_args=decision.arguments if decision.arguments != arguments else None)

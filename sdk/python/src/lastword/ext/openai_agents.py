"""OpenAI Agents SDK: an agent as an agent of the team, its interruptions held by the broker."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

from agents import Agent as ModelAgent
from agents import FunctionTool, ModelResponse, RunContextWrapper, RunHooks, Runner, RunState, function_tool
from agents.items import ToolApprovalItem
from agents.tool import default_tool_error_function
from agents.tool_context import ToolContext
from agents.usage import Usage

from .. import words
from ..agent import Agent
from ..errors import Refused, Rejected
from ..turn import Turn
from . import team
from .team import current_turn, hint

__all__ = ["ask_agent", "current_turn", "hint", "list_agents", "serve", "tool_error"]

ask_agent = function_tool(team.ask_agent)
list_agents = function_tool(team.list_agents)


def tool_error(context: RunContextWrapper[Any], error: Exception) -> str:
    """Makes refusals tool results: `@function_tool(failure_error_function=tool_error)`."""
    return hint(error) if isinstance(error, Refused | Rejected) else default_tool_error_function(context, error)


def serve(
    agent: Agent,
    model_agent: ModelAgent[Any],
    action: str | None = None,
    *,
    prompt: Callable[[Turn], Any] = lambda turn: words.prompt(turn.message),
    **options: Any,
) -> None:
    """Registers the agent as the handler of requests with this action; without one, of all others.

    `options` are those of `Runner.run`, such as `context`, `max_turns` and `run_config`.
    """

    @agent.on_request(action)
    async def handle(turn: Turn) -> Any:  # pyright: ignore[reportUnusedFunction]
        hooks = _Hooks(turn)
        with team.serving(turn):
            edited: dict[str, str] = {}
            _edited.set(edited)
            try:
                result = await Runner.run(model_agent, prompt(turn), hooks=hooks, **options)
                while result.interruptions:
                    state = result.to_state()
                    await team.together(*(_decide(turn, state, item, edited) for item in result.interruptions))
                    result = await Runner.run(model_agent, state, hooks=hooks, **options)
            finally:
                hooks.count()
        return team.answer(result.final_output)


async def _decide(turn: Turn, state: RunState[Any], item: ToolApprovalItem, edited: dict[str, str]) -> None:
    try:
        arguments = json.loads(item.arguments or "{}")
    except ValueError:
        arguments = {"input": item.arguments}
    decision = await team.held(turn, item.name or "", arguments)
    if isinstance(decision, team.Denied):
        state.reject(item, rejection_message=decision.text)
    elif decision.arguments == arguments:
        state.approve(item)
    elif takes_edits(item):
        edited[item.call_id or ""] = json.dumps(decision.arguments)
        state.approve(item)
    else:
        state.reject(item, rejection_message=team.only(decision))


_edited: ContextVar[dict[str, str]] = ContextVar("lastword_edited")
"""The arguments of edited calls of the turn, by the call's id."""


def takes_edits(item: ToolApprovalItem) -> bool:
    """Lets the tool of a call take other arguments: in the call itself the state knows those of the model."""
    for tool in item.agent.tools:
        if isinstance(tool, FunctionTool) and tool.name == item.name:
            invoke = tool.on_invoke_tool
            if not hasattr(invoke, "takes_edits"):
                tool.on_invoke_tool = _editing(invoke)
            return True
    return False


def _editing(invoke: Any) -> Any:
    """The tool's own invoker, also in its type, by which the framework reads arguments."""

    def chosen(context: ToolContext[Any], arguments: str) -> str:
        edited = _edited.get({})
        return edited.pop(context.tool_call_id, arguments) if edited else arguments

    if inspect.isroutine(invoke):

        @functools.wraps(invoke)
        async def call(context: ToolContext[Any], arguments: str) -> Any:
            return await invoke(context, chosen(context, arguments))

        call.__dict__["takes_edits"] = True
        return call

    async def called(self: Any, context: ToolContext[Any], arguments: str) -> Any:
        return await kind.__call__(self, context, chosen(context, arguments))

    kind = cast(type[Any], type(invoke))
    editing = copy.copy(invoke)
    editing.__class__ = type(kind.__name__, (kind,), {"__call__": called, "takes_edits": True})
    return editing


class _Hooks(RunHooks[Any]):
    """Counts each response, and what agents that run as tools used."""

    def __init__(self, turn: Turn) -> None:
        self._meter = team.Meter(turn)
        self._usage: Usage | None = None

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self._usage = context.usage

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Any, response: ModelResponse) -> None:
        model = agent.model
        name = model if isinstance(model, str | None) else getattr(model, "model", None)
        self._meter.response(name, response.usage.input_tokens, response.usage.output_tokens)
        self._usage = context.usage
        self.count()

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Any) -> None:
        self._usage = context.usage

    def count(self) -> None:
        if self._usage is not None:
            self._meter.total(self._usage.input_tokens, self._usage.output_tokens)

"""LangGraph and LangChain: a graph as an agent of the team, its interrupts held by the broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt

from .. import words
from ..agent import Agent
from ..errors import LastwordError, Refused, Rejected
from ..keys import ByContent, digest
from ..turn import Turn
from . import team
from .team import current_turn, hint

__all__ = ["ToolRefusals", "ask_agent", "current_turn", "hint", "list_agents", "serve"]

Graph = Pregel[Any, Any, Any, Any]

ask_agent = StructuredTool.from_function(coroutine=team.ask_agent, parse_docstring=True)
list_agents = StructuredTool.from_function(coroutine=team.list_agents)


def serve(
    agent: Agent,
    graph: Graph,
    action: str | None = None,
    *,
    given: Callable[[Turn], Any] = lambda turn: {"messages": [("user", words.prompt(turn.message))]},
    answer: Callable[[Any], Any] = lambda state: state["messages"][-1].text,
) -> None:
    """Registers the graph as the handler of requests with this action; without one, of all others.

    `given` makes the graph's input, `answer` takes the answer from its last state. A graph with a checkpointer goes on
    at its last checkpoint when the request is delivered again; one without is run from the start.
    """
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise LastwordError("a breakpoint has no question that a human could answer: use `interrupt()`")

    @agent.on_request(action)
    async def handle(turn: Turn) -> Any:  # pyright: ignore[reportUnusedFunction]
        return answer(await _Run(graph, turn).run(given))


class ToolRefusals(AgentMiddleware[Any, Any, Any]):
    """Makes `Refused` and `Rejected` from a tool its result. For a `ToolNode`: `handle_tool_errors=hint`."""

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        try:
            return await handler(request)
        except (Refused, Rejected) as error:
            call = request.tool_call
            return ToolMessage(hint(error), name=call["name"], tool_call_id=call["id"], status="error")


class _Run:
    def __init__(self, graph: Graph, turn: Turn) -> None:
        saver = cast(Any, graph.checkpointer)
        # One in memory is gone after a crash like none.
        self._durable = isinstance(saver, BaseCheckpointSaver) and not isinstance(saver, InMemorySaver)
        self._graph = graph if self._durable else graph.copy({"checkpointer": InMemorySaver()})
        self._turn = turn
        self._keys = _Keys(self._durable)
        # Ids begin anew in another workspace, times don't.
        thread = f"{turn.message['id']} {turn.message['created_at']}"
        self._config: RunnableConfig = {"configurable": {"thread_id": thread}, "callbacks": [_Usage(turn)]}

    async def run(self, given: Callable[[Turn], Any]) -> Any:
        with team.serving(self._turn, self._keys):
            state = await self._graph.aget_state(self._config)
            step, waiting = given(self._turn), state.interrupts
            if state.created_at is not None:
                if not state.next:
                    return state.values
                step = None
            while True:
                if waiting:
                    step = Command(resume=await self._decide(waiting))
                self._keys.again()
                # What a node asked for is known by its checkpoint, which is written first.
                durability = "sync" if self._durable else None
                result = await self._graph.ainvoke(step, self._config, durability=durability, version="v2")
                waiting = result.interrupts
                if not waiting:
                    return result.value

    async def _decide(self, waiting: Sequence[Interrupt]) -> dict[str, Any]:
        answers = await team.together(*(self._answer(one) for one in waiting))
        return {one.id: answer for one, answer in zip(waiting, answers, strict=True)}

    async def _answer(self, waiting: Interrupt) -> Any:
        _interrupt.set(waiting.id)
        value = waiting.value
        if isinstance(value, dict):
            asked = cast(dict[str, Any], value)
            if "action_requests" in asked:
                allowed = {one["action_name"]: one["allowed_decisions"] for one in asked["review_configs"]}
                calls = asked["action_requests"]
                return {
                    "decisions": await team.together(*(self._decision(call, allowed[call["name"]]) for call in calls))
                }
            if asked.get("type") == "tool_approval":
                schema = json.dumps(waiting.response_schema)
                return await self._decision(asked, [kind for kind in _DECISIONS if f'"{kind}"' in schema])
            if "question" in asked:
                return await self._turn.escalate(asked["question"], options=asked.get("options", ()))
        return await self._turn.escalate(value if isinstance(value, str) else json.dumps(value))

    async def _decision(self, call: dict[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
        name, arguments = call["name"], call["args"]
        if list(allowed) == ["respond"]:  # A tool whose result is what a human says.
            answer = await self._turn.escalate(f"{name}: {json.dumps(arguments)}")
            return {"type": "respond", "message": words.block("The answer of a human:", {"": answer})}
        decision = await team.held(self._turn, name, arguments)
        if isinstance(decision, team.Denied):
            kind = "respond" if decision.instructed and "respond" in allowed else "reject"
            return {"type": kind, "message": decision.text}
        if decision.arguments == arguments:
            return {"type": "approve"}
        if "edit" in allowed:
            return {"type": "edit", "edited_action": {"name": name, "args": decision.arguments}}
        return {"type": "reject", "message": team.only(decision)}


_DECISIONS = ("approve", "edit", "reject", "respond")
_interrupt: ContextVar[str] = ContextVar("lastword_interrupt")


class _Keys(ByContent):
    """LangGraph runs a node again from its start when its interrupt is answered: it makes the same calls again then.

    With a checkpointer also after a crash, from the same checkpoint. A node is known by it, and so are its calls.
    """

    def __init__(self, durable: bool) -> None:
        super().__init__()
        self._durable = durable
        self._made: Counter[tuple[str, str]] = Counter()
        self._keys: dict[tuple[str, str, int], str] = {}

    def again(self) -> None:
        self._made.clear()

    def __call__(self, call: str, body: Any) -> str:
        made = (_place(), digest(call, body))
        self._made[made] += 1
        one = (*made, self._made[made])
        if one not in self._keys:
            self._keys[one] = digest(one) if self._durable else super().__call__(call, body)
        return self._keys[one]


def _place() -> str:
    if interrupt := _interrupt.get(""):
        return interrupt
    try:
        return get_config().get("configurable", {}).get("checkpoint_ns", "")
    except RuntimeError:
        return ""


class _Usage(BaseCallbackHandler):
    """Counts each answer of a model, also of those within tools and subgraphs."""

    run_inline = True

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        for first, *_more in response.generations:
            if isinstance(first, ChatGeneration) and isinstance(first.message, AIMessage):
                used, meta = first.message.usage_metadata, first.message.response_metadata
                if used:
                    count = partial(self._turn.spent, model=meta.get("model_name") or meta.get("model"))
                    tokens = {"input_tokens": used["input_tokens"], "output_tokens": used["output_tokens"]}
                    # A node that isn't async runs in a thread.
                    self._loop.call_soon_threadsafe(partial(count, **tokens))

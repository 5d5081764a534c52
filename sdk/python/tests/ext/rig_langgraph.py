"""LangChain's agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from pydantic import ConfigDict
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Calls, Model, Tool
from with_langgraph import start

from lastword import Agent
from lastword.ext.langgraph import ToolRefusals, ask_agent, list_agents
from lastword.ext.langgraph import serve as serve_graph


class Chat(BaseChatModel):
    model: Model
    model_config = ConfigDict(arbitrary_types_allowed=True)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = await self.model("\n".join(message.text for message in messages))
        usage = {
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        calls: Calls = [] if isinstance(said, str) else said
        message = AIMessage(
            said if isinstance(said, str) else "",
            tool_calls=[{"name": name, "args": args, "id": f"{id(said)}-{n}"} for n, (name, args) in enumerate(calls)],
            usage_metadata=usage,
            response_metadata={"model_name": "scripted"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def agent_graph(model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = (), **more: Any) -> Any:
    tools = [StructuredTool.from_function(coroutine=one) for one in (*held, *plain)]
    holding = HumanInTheLoopMiddleware({one.__name__: True for one in held})
    more.setdefault("middleware", [ToolRefusals(), holding])
    return create_agent(Chat(model=model), [ask_agent, list_agents, *tools], **more)


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    serve_graph(agent, agent_graph(model, held=held, plain=plain))


def example(agent: Agent, model: Model) -> None:
    start(agent, Chat(model=model))

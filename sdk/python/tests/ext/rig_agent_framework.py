"""The example of Microsoft's Agent Framework."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent as ModelAgent
from agent_framework import BaseChatClient, ChatMiddlewareLayer, ChatResponse, Content, FunctionInvocationLayer, Message
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Model, Tool
from with_agent_framework import serve as serve_agent
from with_agent_framework import start

from lastword import Agent
from lastword.ext import ask_agent, list_agents


class Chat(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        return self._respond(messages)

    async def _respond(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        parts = [part for message in messages for part in message.contents]
        said = await self._model("\n".join(str(part.text or getattr(part, "result", None) or "") for part in parts))
        if isinstance(said, str):
            made: list[Any] = [said]
        else:
            made = [Content.from_function_call(uuid.uuid4().hex, name, arguments=args) for name, args in said]
        used: Any = {"input_token_count": INPUT_TOKENS, "output_token_count": OUTPUT_TOKENS}
        return ChatResponse(messages=[Message("assistant", made)], usage_details=used, model="scripted")


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    tools: list[Any] = [ask_agent, list_agents, *held, *plain]
    serve_agent(agent, ModelAgent(Chat(model), tools=tools), *(one.__name__ for one in held))


def example(agent: Agent, model: Model) -> None:
    start(agent, Chat(model))

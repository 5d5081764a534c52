"""An agent of the OpenAI Agents SDK."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Agent as ModelAgent
from agents import Model as BaseModel
from agents import ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.items import TResponseStreamEvent
from agents.testing import assistant_message, function_call
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Model, Tool
from with_openai_agents import start

from lastword import Agent
from lastword.ext.openai_agents import ask_agent, list_agents, tool_error
from lastword.ext.openai_agents import serve as serve_agent

set_tracing_disabled(True)


class Chat(BaseModel):
    model = "scripted"

    def __init__(self, model: Model) -> None:
        self._model = model

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        given = [{"content": input}] if isinstance(input, str) else input
        said = await self._model("\n".join(str(item.get("content") or item.get("output") or "") for item in given))
        if isinstance(said, str):
            output: list[Any] = [assistant_message(said)]
        else:
            output = [function_call(name, json.dumps(args), call_id=uuid.uuid4().hex) for name, args in said]
        usage = Usage(1, INPUT_TOKENS, output_tokens=OUTPUT_TOKENS, total_tokens=INPUT_TOKENS + OUTPUT_TOKENS)
        return ModelResponse(output, usage, None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


def model_agent(model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> ModelAgent[Any]:
    tools: list[Any] = [ask_agent, list_agents]
    tools += [function_tool(one, needs_approval=True) for one in held]
    tools += [function_tool(one, failure_error_function=tool_error) for one in plain]
    return ModelAgent[Any]("scripted", model=Chat(model), tools=tools)


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    serve_agent(agent, model_agent(model, held=held, plain=plain))


def example(agent: Agent, model: Model) -> None:
    start(agent, Chat(model))

"""An agent of Pydantic AI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai import Tool as ModelTool
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Model, Tool
from with_pydantic_ai import start

from lastword import Agent
from lastword.ext.pydantic_ai import ask_agent, list_agents
from lastword.ext.pydantic_ai import serve as serve_agent


def chat(model: Model) -> FunctionModel:
    async def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [getattr(part, "content", "") for message in messages for part in message.parts]
        said = await model("\n".join(str(part) for part in parts))
        made = [TextPart(said)] if isinstance(said, str) else [ToolCallPart(name, args) for name, args in said]
        return ModelResponse(made, usage=RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS))

    return FunctionModel(respond, model_name="scripted")


def model_agent(model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> ModelAgent[Any, Any]:
    tools = [ask_agent, list_agents, *plain, *(ModelTool[Any](one, requires_approval=True) for one in held)]
    return ModelAgent(chat(model), tools=tools)


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    serve_agent(agent, model_agent(model, held=held, plain=plain))


def example(agent: Agent, model: Model) -> None:
    start(agent, chat(model))

"""The example of Google's ADK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Model, Tool
from with_google_adk import serve as serve_agent
from with_google_adk import start

from lastword import Agent
from lastword.ext import ask_agent, list_agents


class Chat(BaseLlm):
    said: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        given = [str((one.function_response.response or {}).get("result")) for one in parts if one.function_response]
        said = await self.said("\n".join([*(part.text for part in parts if part.text), *given]))
        if isinstance(said, str):
            made = [types.Part(text=said)]
        else:
            made = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in said]
        used = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=INPUT_TOKENS, candidates_token_count=OUTPUT_TOKENS
        )
        yield LlmResponse(content=types.Content(role="model", parts=made), usage_metadata=used)


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    tools: list[Any] = [ask_agent, list_agents, *held, *plain]
    chat = Chat(model="scripted", said=model)
    serve_agent(agent, LlmAgent(name="scripted", model=chat, tools=tools), *(one.__name__ for one in held))


def example(agent: Agent, model: Model) -> None:
    start(agent, Chat(model="scripted", said=model))

"""The example of CrewAI. What runs in its threads can't be cancelled."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

from crewai import Agent as ModelAgent
from crewai.llms.base_llm import BaseLLM
from scripted import INPUT_TOKENS, OUTPUT_TOKENS, Model, Tool
from with_crewai import LOOP, start, tool
from with_crewai import serve as serve_agent

from lastword import Agent
from lastword.ext import ask_agent, list_agents

WITHOUT = ("budget", "fails")


class Chat(BaseLLM):
    said: Any

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        given = "\n".join(str(message.get("content") or "") for message in messages if message["role"] != "system")
        said = asyncio.run_coroutine_threadsafe(self.said(given), LOOP.get()).result()
        self._track_token_usage_internal({"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS})
        if isinstance(said, str):
            return said
        calls = [{"name": name, "arguments": json.dumps(args)} for name, args in said]
        return [{"id": f"{id(said)}-{n}", "type": "function", "function": call} for n, call in enumerate(calls)]

    def supports_function_calling(self) -> bool:
        return True


def serve(agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None:
    tools = [tool(one, hold=one in held) for one in (ask_agent, list_agents, *held, *plain)]
    about: Any = {"role": "scripted", "goal": "Answer.", "backstory": "A member."}
    serve_agent(agent, lambda: ModelAgent(**about, llm=Chat(model="scripted", said=model), tools=tools))


def example(agent: Agent, model: Model) -> None:
    start(agent, Chat(model="scripted", said=model))

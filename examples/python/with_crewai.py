"""An agent of CrewAI in the team. Its tools are made of functions here, and those that are held ask first.

pip install lastword-sdk crewai
LASTWORD_TOKEN=$(lastword agent add coder) python with_crewai.py
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from crewai import Agent as ModelAgent
from crewai.tools import tool as crewai_tool

from lastword import Agent, Refused, Rejected, Turn
from lastword.ext import Denied, ask_agent, current_turn, held, hint, list_agents, prompt, serving

LOOP: ContextVar[asyncio.AbstractEventLoop] = ContextVar("loop")


async def call(function: Callable[..., Awaitable[str]], hold: bool, arguments: dict[str, Any]) -> str:
    try:
        if hold:
            decision = await held(current_turn(), function.__name__, arguments)
            if isinstance(decision, Denied):
                return decision.text
            arguments = decision.arguments
        return await function(**arguments)
    except (Refused, Rejected) as error:
        return hint(error)


def tool(function: Callable[..., Awaitable[str]], *, hold: bool = False) -> Any:
    """A tool of CrewAI, which runs it in a thread."""

    @functools.wraps(function)
    def run(**arguments: Any) -> str:
        return asyncio.run_coroutine_threadsafe(call(function, hold, arguments), LOOP.get()).result()

    return crewai_tool(run)


def serve(agent: Agent, model_agent: Callable[[], ModelAgent]) -> None:
    """Serves an agent, which is made anew for each request."""

    @agent.on_request()
    async def handle(turn: Turn) -> str:
        LOOP.set(asyncio.get_running_loop())
        with serving(turn):
            result = await model_agent().akickoff(prompt(turn.message))
        if used := result.usage_metrics:
            turn.spent(input_tokens=used["prompt_tokens"], output_tokens=used["completion_tokens"])
        return result.raw


async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    tools = [tool(ask_agent), tool(list_agents), tool(push, hold=True)]
    role = {"role": "coder", "goal": "Answer the request.", "backstory": "A member of the team."}
    serve(agent, lambda: ModelAgent(**role, llm=model, tools=tools))


if __name__ == "__main__":
    coder = Agent.from_env()
    start(coder, "anthropic/claude-sonnet-5")
    coder.run()

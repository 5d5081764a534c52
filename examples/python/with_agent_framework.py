"""An agent of Microsoft's Agent Framework in the team: middleware holds its calls, and counts what its model uses.

pip install lastword-sdk agent-framework-core agent-framework-openai
LASTWORD_TOKEN=$(lastword agent add coder) python with_agent_framework.py
"""

from typing import Any

from agent_framework import Agent as ModelAgent
from agent_framework import ChatMiddleware, FunctionMiddleware

from lastword import Agent, Refused, Rejected, Turn
from lastword.ext import Denied, ask_agent, current_turn, held, hint, list_agents, prompt, serving


class Hold(FunctionMiddleware):
    def __init__(self, *tools: str) -> None:
        self._tools = tools

    async def process(self, context: Any, call_next: Any) -> None:
        if context.function.name in self._tools:
            decision = await held(current_turn(), context.function.name, dict(context.arguments))
            if isinstance(decision, Denied):
                context.result = decision.text
                return
            context.arguments = decision.arguments
        try:
            await call_next()
        except (Refused, Rejected) as error:
            context.result = hint(error)


class Count(ChatMiddleware):
    async def process(self, context: Any, call_next: Any) -> None:
        await call_next()
        if used := context.result.usage_details:
            tokens = {"input_tokens": used["input_token_count"], "output_tokens": used["output_token_count"]}
            current_turn().spent(model=context.result.model, **tokens)


def serve(agent: Agent, model_agent: ModelAgent, *tools: str) -> None:
    """Serves an agent; the calls of these tools are held."""

    @agent.on_request()
    async def handle(turn: Turn) -> str:
        with serving(turn):
            return (await model_agent.run(prompt(turn.message), middleware=[Hold(*tools), Count()])).text


async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    serve(agent, ModelAgent(model, tools=[ask_agent, list_agents, push]), "push")


if __name__ == "__main__":
    from agent_framework.openai import OpenAIChatClient

    coder = Agent.from_env()
    start(coder, OpenAIChatClient())
    coder.run()

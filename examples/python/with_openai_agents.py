"""An agent of the OpenAI Agents SDK in the team: it asks others, and a human decides before it pushes.

pip install "lastword-sdk[openai-agents]"
LASTWORD_TOKEN=$(lastword agent add coder) python with_openai_agents.py
"""

from typing import Any

from agents import Agent as ModelAgent
from agents import function_tool

from lastword import Agent
from lastword.ext.openai_agents import ask_agent, list_agents, serve


@function_tool(needs_approval=True)
async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    serve(agent, ModelAgent("coder", model=model, tools=[ask_agent, list_agents, push]))


if __name__ == "__main__":
    coder = Agent.from_env()
    start(coder, None)
    coder.run()

"""An agent of Pydantic AI in the team: it asks others, and a human decides before it pushes.

pip install "lastword-sdk[pydantic-ai]" "pydantic-ai-slim[anthropic]"
LASTWORD_TOKEN=$(lastword agent add coder) python with_pydantic_ai.py
"""

from typing import Any

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import Tool

from lastword import Agent
from lastword.ext.pydantic_ai import ask_agent, list_agents, serve


async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    serve(agent, ModelAgent(model, tools=[ask_agent, list_agents, Tool(push, requires_approval=True)]))


if __name__ == "__main__":
    coder = Agent.from_env()
    start(coder, "anthropic:claude-sonnet-5")
    coder.run()

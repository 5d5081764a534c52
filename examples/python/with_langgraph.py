"""A LangChain agent in the team: it asks others, and a human decides before it pushes.

pip install "lastword-sdk[langgraph]" langchain-anthropic
LASTWORD_TOKEN=$(lastword agent add coder) python with_langgraph.py
"""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool

from lastword import Agent
from lastword.ext.langgraph import ToolRefusals, ask_agent, list_agents, serve


@tool
async def push(branch: str) -> str:
    """Pushes a branch."""
    return f"pushed {branch}"


def start(agent: Agent, model: Any) -> None:
    holding = HumanInTheLoopMiddleware({"push": True})
    serve(agent, create_agent(model, [ask_agent, list_agents, push], middleware=[ToolRefusals(), holding]))


if __name__ == "__main__":
    coder = Agent.from_env()
    start(coder, "anthropic:claude-sonnet-5")
    coder.run()

"""Agents that run as tools of another."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent as ModelAgent
from agents import FunctionTool, function_tool
from agents.items import ToolApprovalItem
from openai.types.responses import ResponseFunctionToolCall
from rig_openai_agents import Chat, model_agent
from scripted import INPUT_TOKENS, LATE, OUTPUT_TOKENS, Model, deciding, human, serving, tokens

from lastword import Agent
from lastword.ext.openai_agents import serve, takes_edits
from lastword.testing import Broker


async def test_a_call_of_an_inner_agent_is_edited_and_its_usage_counts_once(lastword: Broker) -> None:
    agent, made = Agent(lastword.url, lastword.agent("kilo")), list[str]()

    async def push(branch: str) -> str:
        """Pushes a branch."""
        made.append(branch)
        return f"pushed {branch}"

    inner = model_agent(Model([("push", {"branch": "wrong"})], [("push", {"branch": "main"})], "inner"), held=[push])
    outer = Model([("delegate", {"input": "push"})], "outer")
    tools: list[Any] = [inner.as_tool("delegate", "Delegates.")]
    serve(agent, ModelAgent[Any]("outer", model=Chat(outer), tools=tools))
    async with serving(agent), human(lastword) as operator:

        async def decide(waiting: Any) -> None:
            wrong = waiting["arguments"] == {"branch": "wrong"}
            await operator.decide(
                waiting, *(("edit",) if wrong else ("approve",)), arguments={"branch": "right"} if wrong else None
            )

        async with deciding(operator, decide):
            assert (await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)).text == "outer"
    assert made == ["right", "main"] and outer.seen[1].endswith("inner")
    assert tokens(lastword, "T-1") == 5 * (INPUT_TOKENS + OUTPUT_TOKENS)


async def test_a_tool_that_takes_edits_is_as_it_was_for_the_framework() -> None:
    async def policy(*_: Any) -> bool:
        return True

    async def push(branch: str = "main") -> str:
        """Pushes a branch."""
        return branch

    tool = function_tool(push, needs_approval=policy)
    call = ResponseFunctionToolCall(arguments="{}", call_id="1", name="push", type="function_call")
    invoker: type[Any] = type(tool.on_invoke_tool)
    item = ToolApprovalItem(ModelAgent[Any]("one", tools=[tool]), call)
    assert takes_edits(item) and takes_edits(item)
    assert isinstance(tool, FunctionTool) and isinstance(tool.on_invoke_tool, invoker)
    assert not takes_edits(ToolApprovalItem(ModelAgent[Any]("none"), call))

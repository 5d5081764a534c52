"""Agents that tools run, and calls that nothing makes."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from rig_pydantic_ai import chat, model_agent
from scripted import INPUT_TOKENS, LATE, OUTPUT_TOKENS, Model, deciding, human, serving, tokens

from lastword import Agent
from lastword.ext.pydantic_ai import Held, serve
from lastword.testing import Broker


class Verdict(BaseModel):
    merged: bool


async def test_an_inner_agent_is_held_and_what_it_used_counts_once(lastword: Broker) -> None:
    agent, made = Agent(lastword.url, lastword.agent("kilo")), list[str]()

    async def push(branch: str) -> str:
        """Pushes a branch."""
        made.append(branch)
        return f"pushed {branch}"

    inner = model_agent(Model([("push", {"branch": "wrong"})], "inner"), held=[push])

    async def delegate(ctx: RunContext[Any]) -> str:
        """Delegates."""
        return (await inner.run("push", usage=ctx.usage, capabilities=[Held()])).output

    outer = Model([("delegate", {})], [("final_result", {"merged": True})])
    serve(agent, ModelAgent(chat(outer), tools=[delegate], output_type=Verdict))
    async with serving(agent), human(lastword) as operator:

        async def decide(waiting: Any) -> None:
            await operator.decide(waiting, "edit", arguments={"branch": "right"})

        async with deciding(operator, decide):
            reply = await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)
    assert reply.payload == {"merged": True} and made == ["right"]
    assert tokens(lastword, "T-1") == 4 * (INPUT_TOKENS + OUTPUT_TOKENS)


async def test_a_call_that_something_else_has_to_make_is_named(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))
    outside = ExternalToolset[Any]([ToolDefinition(name="print_label")])
    model = chat(Model([("print_label", {})]))
    serve(agent, ModelAgent(model, toolsets=[outside], output_type=[str, DeferredToolRequests]))
    async with serving(agent), human(lastword) as operator:
        reply = await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)
    assert reply.failed and "print_label" in str(reply.message.get("reason"))

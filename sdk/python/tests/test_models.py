"""Handlers in which a model decides: what they say differs from run to run, and what they spend is told at once."""

from __future__ import annotations

import asyncio

from lastword import Agent, ByContent, Human, Turn
from lastword.testing import Broker

LATE = 60.0


async def test_a_run_that_says_the_same_gets_the_first_result_and_another_asks_anew(lastword: Broker) -> None:
    token = lastword.agent("kilo")
    other = Agent(lastword.url, lastword.agent("other"))
    first, second = Agent(lastword.url, token), Agent(lastword.url, token)
    served: list[str] = []
    reached = asyncio.Event()

    @other.on_request()
    async def count(turn: Turn, body: str) -> str:
        served.append(body)
        return f"{body} {served.count(body)}"

    @first.on_request()
    async def breaks(turn: Turn) -> None:
        turn.keys = ByContent()
        for text in ("same", "same"):
            await turn.ask("other", text)
        reached.set()
        await asyncio.sleep(LATE)

    @second.on_request()
    async def works(turn: Turn) -> str:
        turn.keys = ByContent()
        # Beside each other, in an order of their own.
        said = await asyncio.gather(*(turn.ask("other", text) for text in ("yours", "same", "same")))
        return ", ".join(reply.text for reply in said)

    serving = asyncio.create_task(other.serve())
    async with Human(lastword.url, lastword.operator) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "go", ref="T-1"))
        crashing = asyncio.create_task(first.serve(grace=0))
        await asyncio.wait_for(reached.wait(), LATE)
        crashing.cancel()
        await asyncio.gather(crashing, return_exceptions=True)
        working = asyncio.create_task(second.serve())
        reply = await asyncio.wait_for(asked, LATE)
        assert reply.text == "yours 1, same 1, same 2", reply
    assert served == ["same", "same", "yours"]
    second.stop()
    other.stop()
    await asyncio.wait_for(asyncio.gather(serving, working), LATE)


async def test_a_turn_that_a_budget_ended_goes_on_with_its_request_once_there_is_more() -> None:
    with Broker("[limits]\ngrant_tokens_max = 150\n") as lastword:
        token = lastword.agent("kilo")
        runs: list[str] = []
        ended = asyncio.Event()

        async def work(turn: Turn, body: str) -> str:
            runs.append(body)
            if len(runs) > 2:
                return "done"
            turn.spent(input_tokens=100)
            turn.spent(input_tokens=10_000 if len(runs) == 1 else 90_000)
            try:
                await asyncio.sleep(LATE)
            finally:
                ended.set()
            return "late"

        async with Human(lastword.url, lastword.operator) as operator:
            asked = asyncio.create_task(operator.ask("kilo", "Work", ref="T-1"))
            for run in range(3):
                agent = Agent(lastword.url, token)
                agent.on_request()(work)
                serving = asyncio.create_task(agent.serve())
                await asyncio.wait_for(ended.wait() if run < 2 else asked, LATE)
                ended.clear()
                agent.stop()
                await asyncio.wait_for(serving, LATE)
                if run < 2:
                    await operator.grant("T-1", tokens=20_000)
            assert (await asked).text == "done"
        assert runs == ["Work"] * 3

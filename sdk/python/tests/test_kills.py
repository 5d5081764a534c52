"""Processes that are killed in the middle of a handler, with the broker now and then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from asyncio import FIRST_COMPLETED
from pathlib import Path

import pytest

from lastword import Agent, Human, Turn
from lastword.testing import Broker

LATE = 120.0
KILLS = int(os.environ.get("LASTWORD_SDK_KILLS", "0"))
"""A campaign of its own: LASTWORD_SDK_KILLS=200."""

LIMITS = """[limits]
pair_messages_max = 1000000
sender_messages_max = 1000000
"""
"""A campaign sends more in a minute than a team."""

HANDLER = Path(__file__).with_name("five_steps.py")


@pytest.mark.skipif(KILLS == 0, reason="a campaign: LASTWORD_SDK_KILLS says how long")
async def test_a_handler_that_is_killed_at_any_moment_does_each_step_once() -> None:
    random.seed(7)
    with Broker(LIMITS) as broker:
        await campaign(broker)


async def campaign(lastword: Broker) -> None:
    environment = {**os.environ, "LASTWORD_URL": lastword.url, "LASTWORD_TOKEN": lastword.agent("kilo")}
    other = Agent(lastword.url, lastword.agent("other"))
    served: list[str] = []

    @other.on_request()
    async def serve(turn: Turn, body: str) -> str:
        served.append(body)
        await asyncio.sleep(0.05)
        return f"{body}."

    serving = asyncio.create_task(other.serve())
    decided: list[str] = []
    killed, task = 0, 0
    async with Human(lastword.url, lastword.operator) as operator:

        async def decide() -> None:
            async for waiting in operator.watch():
                decided.append(waiting["id"])
                await asyncio.sleep(0.05)
                if "tool" in waiting:
                    await operator.decide(waiting, "approve")
                else:
                    await operator.answer(waiting, "yes")

        deciding = asyncio.create_task(decide())
        while killed < KILLS:
            task += 1
            asked = asyncio.create_task(operator.ask("kilo", "go", ref=f"T-{task}"))
            while not asked.done():
                process = await asyncio.create_subprocess_exec(sys.executable, HANDLER, env=environment)
                await asyncio.wait({asked, deciding}, timeout=random.uniform(0.3, 1.2), return_when=FIRST_COMPLETED)
                assert not deciding.done(), "the human decides to the end"
                if random.random() < 0.2 and not asked.done():
                    lastword.kill()
                    lastword.start()
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                    killed += 1
                await process.wait()
            reply = await asyncio.wait_for(asked, LATE)
            assert reply.text == "one. two. yes pushed", reply
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
    other.stop()
    await asyncio.wait_for(serving, LATE)
    assert served == ["one", "two"] * task
    assert len(decided) == 2 * task, "one question and one held call a task"

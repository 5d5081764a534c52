"""The code of the first page runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from lastword import Agent, Answer, Human, Turn
from lastword.testing import Broker

README = Path(__file__).parents[1] / "README.md"
LATE = 60.0


async def test_the_first_example_reviews(lastword: Broker, tmp_path: Path) -> None:
    program = tmp_path / "reviewer.py"
    program.write_text(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0])
    token = lastword.agent("reviewer", actions=["review_code"])
    tester = Agent(lastword.url, lastword.agent("tester", actions=["run_tests"]))

    @tester.on_request("run_tests")
    async def run(turn: Turn) -> Answer:
        return Answer("two tests fail", status="failed")

    serving = asyncio.create_task(tester.serve())
    environment = {**os.environ, "LASTWORD_URL": lastword.url, "LASTWORD_TOKEN": token}
    reviewer = await asyncio.create_subprocess_exec(sys.executable, program, env=environment)
    async with Human(lastword.url, lastword.operator) as human:
        asked = asyncio.create_task(human.ask("reviewer", ref="T-1", action="review_code", payload={"diff": "+1"}))
        async for waiting in human.watch():
            if "tool" in waiting:
                await human.decide(waiting, "approve")
                break
            await human.answer(waiting, "yes")
        assert (await asyncio.wait_for(asked, LATE)).text == "Merged."
    reviewer.terminate()
    assert await asyncio.wait_for(reviewer.wait(), LATE) == 0
    tester.stop()
    await asyncio.wait_for(serving, LATE)

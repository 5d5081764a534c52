"""The code of the first page runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from lastword import Agent, Answer, Human, Turn
from lastword.testing import Broker

README = Path(__file__).parents[1] / "README.md"
LATE = 60.0
CODE: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
TESTER, PLANNER, REVIEWER, _HUMAN, TEST = CODE


@contextlib.asynccontextmanager
async def running(code: str, directory: Path, lastword: Broker, name: str, **more: Any) -> AsyncGenerator[None]:
    """A program of the page, with a token of its own, until it is ended by SIGTERM."""
    program, token = directory / f"{name}.py", directory / f"{name}.token"
    program.write_text(code)
    token.write_text(lastword.agent(name, **more))
    environment = {**os.environ, "LASTWORD_URL": lastword.url, "LASTWORD_TOKEN_FILE": str(token)}
    process = await asyncio.create_subprocess_exec(sys.executable, program, env=environment)
    try:
        yield
    finally:
        process.terminate()
    assert await asyncio.wait_for(process.wait(), LATE) == 0


async def test_the_two_agents_of_the_first_page_push(lastword: Broker, tmp_path: Path) -> None:
    tester = running(TESTER, tmp_path, lastword, "tester")
    planner = running(PLANNER, tmp_path, lastword, "planner")
    async with tester, planner, Human(lastword.url, lastword.operator) as human:
        asked = asyncio.create_task(human.ask("planner", "The branch login", ref="T-1"))
        async for waiting in human.watch():
            assert "tool" in waiting and waiting.get("reason") == "The branch login: three tests pass."
            await human.decide(waiting, "approve")
            break
        assert (await asyncio.wait_for(asked, LATE)).text == "Pushed."


async def test_the_reviewer_merges(lastword: Broker, tmp_path: Path) -> None:
    tester = Agent(lastword.url, lastword.agent("tester", actions=["run_tests"]))

    @tester.on_request("run_tests")
    async def run(turn: Turn) -> Answer:
        return Answer("two tests fail", status="failed")

    serving = asyncio.create_task(tester.serve())
    reviewer = running(REVIEWER, tmp_path, lastword, "reviewer", actions=["review_code"])
    async with reviewer, Human(lastword.url, lastword.operator) as human:
        asked = asyncio.create_task(human.ask("reviewer", ref="T-1", action="review_code", payload={"diff": "+1"}))
        async for waiting in human.watch():
            if "tool" in waiting:
                await human.decide(waiting, "approve")
                break
            await human.answer(waiting, "yes")
        assert (await asyncio.wait_for(asked, LATE)).text == "Merged."
    tester.stop()
    await asyncio.wait_for(serving, LATE)


async def test_the_test_of_the_page_passes(lastword: Broker) -> None:
    names: dict[str, Any] = {}
    exec(TEST, names)
    await asyncio.wait_for(names["test_the_plan_is_tested"](lastword), LATE)

"""The example without a framework runs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from lastword import Human
from lastword.testing import Broker

EXAMPLE = Path(__file__).parents[3] / "examples/python/two_agents.py"
LATE = 60.0


async def test_two_agents_publish_what_a_human_allows(lastword: Broker) -> None:
    tokens = {name.upper(): lastword.agent(name) for name in ("writer", "checker")}
    environment = {**os.environ, **tokens, "LASTWORD_URL": lastword.url}
    agents = await asyncio.create_subprocess_exec(sys.executable, EXAMPLE, env=environment)
    async with Human(lastword.url, lastword.operator) as operator:
        asked = asyncio.create_task(operator.ask("writer", "Brokers"))
        async for waiting in operator.watch():
            assert "tool" in waiting and waiting["arguments"]["note"] == "4 words"
            await operator.decide(waiting, "edit", arguments={"text": "Brokers route."})
            break
        assert (await asyncio.wait_for(asked, LATE)).text == "Published: Brokers route."
    agents.terminate()
    await asyncio.wait_for(agents.wait(), LATE)

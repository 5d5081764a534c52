"""The scenarios that all clients play: `sdk/conformance`."""

from __future__ import annotations

import asyncio
import json
import string
from pathlib import Path
from typing import Any

import pytest

from lastword import Refused
from lastword.session import Json, Session
from lastword.testing import Broker

LATE = 60.0
"""Seconds that only a fault takes."""

SCENARIOS: list[Json] = json.loads((Path(__file__).parents[2] / "conformance/calls.json").read_text())
READS = {"message", "request", "approval", "escalation", "conversation", "agent"}


class Member:
    """One who acts: a session, and what was pushed into it."""

    def __init__(self, url: str, token: str, *, agent: bool) -> None:
        self.pushed: asyncio.Queue[Json] = asyncio.Queue()
        watch: Json | None = {"deliveries": {"working": []}} if agent else None
        self.session = Session(url, token, watch=lambda: watch, pushed=self._push)

    def _push(self, frame: Json) -> None:
        self.pushed.put_nowait(frame["delivery"] if "delivery" in frame else {"ended": frame["ended"]["turn"]})


class Scenario:
    def __init__(self, broker: Broker, members: dict[str, Member]) -> None:
        self.broker, self.members = broker, members
        self.known: dict[str, str] = {}
        self.started: dict[str, asyncio.Task[Any]] = {}

    def filled(self, value: Any) -> Any:
        """The value with what was saved in place of its names."""
        if isinstance(value, str):
            return string.Template(value).safe_substitute(self.known)
        if isinstance(value, list):
            return [self.filled(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, dict):
            return {name: self.filled(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return value

    def save(self, step: Json, found: Any) -> None:
        for name, path in step.get("save", {}).items():
            value = found
            for member in path.split("."):
                value = value[member]
            self.known[name] = value

    async def play(self, step: Json) -> None:
        if "kill" in step:
            self.broker.kill()
            for member in self.members.values():
                member.pushed = asyncio.Queue()
            self.broker.start()
        elif "refused" in step:
            with pytest.raises(Refused) as refused:
                async with Session(self.broker.url, step["refused"]):
                    pass
            matches(self.filled(step["problem"]), refused.value.problem)
        elif "pushed" in step:
            pushed = await self.members[step["by"]].pushed.get()
            matches(self.filled(step["pushed"]), pushed)
            self.save(step, pushed)
        elif "wait" in step:
            await self.ends(step, self.started.pop(step["wait"]))
        else:
            members = {
                name: self.filled(step[name]) for name in ("path", "query", "key", "turn", "body") if name in step
            }
            again = "key" in step or step["call"] in READS
            call = asyncio.create_task(self.members[step["by"]].session.call(step["call"], again=again, **members))
            if "start" in step:
                self.started[step["start"]] = call
                await asyncio.sleep(0)
            else:
                await self.ends(step, call)

    async def ends(self, step: Json, call: asyncio.Task[Any]) -> None:
        if "problem" in step:
            with pytest.raises(Refused) as refused:
                await call
            matches(self.filled(step["problem"]), refused.value.problem)
            return
        result = await call
        if "result" in step:
            matches(self.filled(step["result"]), result)
        self.save(step, result)


def matches(wanted: Any, found: Any, at: str = "") -> None:
    if wanted == "*":
        assert found is not None, f"nothing at {at}"
    elif isinstance(wanted, dict):
        assert isinstance(found, dict), f"no object at {at}: {found}"
        for name, value in wanted.items():  # pyright: ignore[reportUnknownVariableType]
            assert name in found, f"no {at}.{name} in {found}"
            matches(value, found[name], f"{at}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), f"{at}: {found}"  # pyright: ignore[reportUnknownArgumentType]
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            matches(one, other, f"{at}[{index}]")
    else:
        assert found == wanted, f"{at}: {found!r} instead of {wanted!r}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
async def test_conformance(scenario: Json, lastword: Broker) -> None:
    members = {name: Member(lastword.url, lastword.agent(name), agent=True) for name in scenario["agents"]}
    members["operator"] = Member(lastword.url, lastword.operator, agent=False)
    playing = Scenario(lastword, members)
    for member in members.values():
        await member.session.__aenter__()
    try:
        for number, step in enumerate(scenario["steps"], 1):
            try:
                await asyncio.wait_for(playing.play(step), LATE)
            except (AssertionError, Refused, TimeoutError) as error:
                raise AssertionError(f"step {number}, {step}: {error!r}") from error
    finally:
        for member in members.values():
            await member.session.__aexit__()

"""What the tests of all frameworks share: a model that says what a test says, and a team around it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from lastword import Agent, Human
from lastword.testing import Broker

LATE = 8.0
"""Seconds that only a fault takes."""
INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
"""What each response of the model costs."""

Calls = list[tuple[str, dict[str, Any]]]
Step = str | Calls | Exception | asyncio.Event
"""A text, calls of tools, an error of the provider, or a response that never comes, which sets the event."""
Tool = Callable[..., Awaitable[str]]


class Model:
    """Says its steps one after the other, and keeps what it was given."""

    def __init__(self, *steps: Step) -> None:
        self._steps = iter(steps)
        self.seen: list[str] = []
        self.cancelled = asyncio.Event()

    async def __call__(self, given: str) -> str | Calls:
        self.seen.append(given)
        step = next(self._steps)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, asyncio.Event):
            await self.waits(step)
            raise AssertionError
        return step

    async def waits(self, reached: asyncio.Event) -> None:
        reached.set()
        try:
            await asyncio.sleep(LATE)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Rig(Protocol):
    """Makes an agent of the framework, and serves it."""

    def serve(self, agent: Agent, model: Model, *, held: Sequence[Tool] = (), plain: Sequence[Tool] = ()) -> None: ...

    def example(self, agent: Agent, model: Model) -> None:
        """Serves that of examples/python."""
        ...


@asynccontextmanager
async def serving(*agents: Agent, grace: float = 30) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(agent.serve(grace=grace)) for agent in agents]
    try:
        yield
    finally:
        for agent in agents:
            agent.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), LATE)


@asynccontextmanager
async def breaking(agent: Agent) -> AsyncGenerator[None]:
    """Serves until the block ends, as a process that is killed."""
    task = asyncio.create_task(agent.serve(grace=0))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def deciding(operator: Human, decide: Callable[[Any], Awaitable[object]]) -> AsyncGenerator[None]:
    """Decides on all that waits while the block runs."""

    async def each() -> None:
        async for waiting in operator.watch():
            await decide(waiting)

    task = asyncio.create_task(each())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def human(broker: Broker) -> Human:
    return Human(broker.url, broker.operator)


def tokens(broker: Broker, ref: str) -> int:
    """The tokens that the conversation has spent."""
    with broker.human() as client:
        limits = client.call("GET", "/conversations/{}", ref)["grants"][0]["limits"]
    return next(limit["current"] for limit in limits if "tokens" in limit["name"])

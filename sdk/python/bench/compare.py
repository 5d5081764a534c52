"""Asks a second and the cost of waiting handlers, beside what one would pick instead, in one run on one machine.

    python sdk/python/bench/compare.py [--asks 2000] [--json]

Lastword is `LASTWORD_PROGRAM` or in `PATH`. NATS is measured where `LASTWORD_NATS_SERVER` names a nats-server and
`nats-py` is installed; Restate where `RESTATE_SERVER` names a restate-server and `restate-sdk` and `hypercorn` are
installed. The client for Rust is measured where `LASTWORD_BENCH` names `lastword-bench`. Each of them is started on a
free port, and ends with the run. Lastword and Restate have an answer on disk before it counts, NATS keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lastword import Agent, Human, Turn
from lastword.session import Json, Session
from lastword.testing import Broker

AT_ONCE = 64
"""Asks in flight."""
WAITING = 1_000
"""Handlers that wait in one process."""
WAKES = 200
"""Of them, those whose wake is timed."""
LATE = 300.0
LIMITS = """[limits]
pair_messages_max = 10000000
sender_messages_max = 10000000
fan_out_targets_max = 10000
inbox_max = 100000
"""
"""A benchmark asks more in a minute than a team."""

Ask = Callable[[int], Awaitable[object]]


async def timed(asks: int, ask: Ask) -> dict[str, float]:
    """Asks so many times, some at once; after a tenth of it to warm up."""
    took: list[float] = []

    async def work(numbers: range, into: list[float] | None) -> None:
        free = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with free:
                began = time.perf_counter()
                await ask(number)
                if into is not None:
                    into.append(time.perf_counter() - began)

        await asyncio.gather(*(one(number) for number in numbers))

    warm = asks // 10
    await work(range(warm), None)
    began = time.perf_counter()
    await work(range(warm, warm + asks), took)
    rate = asks / (time.perf_counter() - began)
    return {"asks_per_second": round(rate), "p50_ms": round(statistics.median(took) * 1000, 2)}


@contextlib.asynccontextmanager
async def serving(agent: Agent):
    task = asyncio.create_task(agent.serve())
    try:
        yield
    finally:
        agent.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def lastword_asks(asks: int) -> dict[str, float]:
    with Broker(LIMITS) as broker:
        echo = Agent(broker.url, broker.agent("echo", turns_max=AT_ONCE))

        @echo.on_request()
        async def answer(turn: Turn, body: str) -> str:
            return body

        async with serving(echo), Human(broker.url, broker.operator) as human:
            return await timed(asks, lambda number: human.ask("echo", "hello", ref=f"T-{number}"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(*command: str, cwd: str | None = None, env: dict[str, str] | None = None):
    started = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


async def until_it_listens(port: int) -> None:
    async with asyncio.timeout(LATE):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


async def nats_asks(asks: int) -> dict[str, float]:
    import nats

    port = free_port()
    with process(os.environ["LASTWORD_NATS_SERVER"], "-a", "127.0.0.1", "-p", str(port)):
        await until_it_listens(port)
        server, client = await nats.connect(f"nats://127.0.0.1:{port}"), await nats.connect(f"nats://127.0.0.1:{port}")

        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await server.subscribe("echo", cb=answer)
        await server.flush()
        found = await timed(asks, lambda _: client.request("echo", b"hello", timeout=LATE))
        await client.close()
        await server.close()
        return found


RESTATE_SERVICE = """
import restate
echo = restate.Service("Echo")

@echo.handler()
async def echo_handler(ctx: restate.Context, body: str) -> str:
    return body

app = restate.app([echo])
"""


async def restate_asks(asks: int) -> dict[str, float]:
    import httpx2

    ingress, admin, service, node = (free_port() for _ in range(4))
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "service.py").write_text(RESTATE_SERVICE)  # noqa: ASYNC240
        settings = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_BASE_DIR": directory,
            "DO_NOT_TRACK": "1",
        }
        serve = [sys.executable, "-m", "hypercorn", "service:app", "--bind", f"127.0.0.1:{service}"]
        restate = process(os.environ["RESTATE_SERVER"], cwd=directory, env={**os.environ, **settings})
        with restate, process(*serve, cwd=directory):
            for port in (ingress, admin, service):
                await until_it_listens(port)
            limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
            async with httpx2.AsyncClient(timeout=LATE, limits=limits) as http:
                deployment = {"uri": f"http://127.0.0.1:{service}"}
                (await http.post(f"http://127.0.0.1:{admin}/deployments", json=deployment)).raise_for_status()

                async def ask(number: int) -> None:
                    address = f"http://127.0.0.1:{ingress}/Echo/echo_handler"
                    key = {"idempotency-key": f"k-{number}"}
                    (await http.post(address, json="hello", headers=key)).raise_for_status()

                return await timed(asks, ask)


def rust_asks() -> dict[str, float]:
    """Exchanges of the client for Rust over sessions, as many in flight as `lastword-bench` has."""
    command = [os.environ["LASTWORD_BENCH"], "load", "--json", "--seconds", "2"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["load"]
    row = max(
        (row for row in rows if row["what"].startswith("sessions:") and row["what"].endswith("answer")),
        key=lambda row: row["in_flight"],
    )
    return {
        "asks_per_second": round(row["per_second"]),
        "p50_ms": round(row["p50_ms"], 2),
        "in_flight": row["in_flight"],
    }


def memory(pid: int) -> int:
    """The resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


SLEEPER = """
import time
from lastword import Agent, Turn

agent = Agent.from_env()

@agent.on_request()
async def wait(turn: Turn, body: str) -> dict:
    reply = await turn.ask("other", body)
    return {"late": time.time() - reply.payload["at"]}

agent.run()
"""


async def waiting_handlers() -> dict[str, float]:
    """A process whose handlers wait for answers: its memory, and how long an answer takes to wake its handler."""
    with Broker(LIMITS) as broker:
        other = Agent(broker.url, broker.agent("other", turns_max=WAITING))
        due = [asyncio.Event() for _ in range(WAITING)]
        asked = 0
        one_asked, all_asked = asyncio.Event(), asyncio.Event()

        @other.on_request()
        async def answer(turn: Turn, body: str) -> dict[str, float]:
            nonlocal asked
            asked += 1
            one_asked.set()
            if asked == WAITING:
                all_asked.set()
            await due[int(body)].wait()
            return {"at": time.time()}

        token = broker.agent("sleeper", turns_max=WAITING)
        env = {**os.environ, "LASTWORD_URL": broker.url, "LASTWORD_TOKEN": token}
        async with serving(other), Session(broker.url, broker.operator) as human:

            async def ask(number: int, wait: str | None = None) -> Json:
                """Asks, or gets the answer of what was asked."""
                body = {"type": "request", "to": "sleeper", "ref": f"T-{number}", "body": str(number)}
                query = None if wait is None else {"wait": wait}
                return await human.call("send", key=f"k-{number}", body=body, query=query)

            with process(sys.executable, "-c", SLEEPER, env=env) as sleeper:
                await ask(0)
                await asyncio.wait_for(one_asked.wait(), LATE)
                before = memory(sleeper.pid)
                for number in range(1, WAITING):
                    await ask(number)
                await asyncio.wait_for(all_asked.wait(), LATE)
                each = (memory(sleeper.pid) - before) / (WAITING - 1)
                late: list[float] = []
                for number in range(WAKES):
                    due[number].set()
                    late.append((await ask(number, "1m"))["response"]["payload"]["late"] * 1000)
    late.sort()
    return {
        "handlers": WAITING,
        "kib_each": round(each / 1024, 1),
        "process_mib": round(before / 2**20, 1),
        "wake_p50_ms": round(statistics.median(late), 2),
        "wake_p99_ms": round(late[int(len(late) * 0.99)], 2),
    }


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--asks", type=int, default=2_000, help="asks that are timed (default: %(default)s)")
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = options.parse_args()
    found = {"lastword: a human asks an agent": await lastword_asks(chosen.asks)}
    if "LASTWORD_BENCH" in os.environ:
        found["lastword: the client for Rust"] = await asyncio.to_thread(rust_asks)
    if "LASTWORD_NATS_SERVER" in os.environ:
        found["nats-py: request and reply, not kept"] = await nats_asks(chosen.asks)
    if "RESTATE_SERVER" in os.environ:
        found["restate: a call of a handler"] = await restate_asks(chosen.asks)
    found["lastword: handlers that wait"] = await waiting_handlers()
    if chosen.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"{name:40} " + "  ".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    asyncio.run(main())

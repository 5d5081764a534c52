"""Kills in the middle of streams: of the broker, of a client, of the worker, of the runner and of the agent elsewhere.

What was posted to a push receiver is the whole sequence of events. An undisturbed stream has the same. A stream that breaks goes on
with a new one: it begins with the task as it is, and has every event after that once, in order. What came between the two is older
than the task as it is.
"""

import asyncio
import json
import os
import random
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import httpx
from a2a.client.errors import A2AClientError
from a2a.types import StreamResponse, Task
from a2a.utils.errors import UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict
from reader import events
from world import PROGRAM, Checks, Process, Receiver, World, until

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("LASTWORD_A2A_KILLS", 6))
SEED = int(os.environ.get("LASTWORD_A2A_SEED", random.randrange(1 << 32)))
KINDS = ["broker", "client", "worker", "runner", "remote"]
BINDINGS = ["JSONRPC", "HTTP+JSON"]
NOTES = 12
# So many come after the kill.
LAST = 3
BROKEN = (A2AClientError, httpx.HTTPError)


async def patiently(call, what: str):
    """Makes a call until the broker is there again."""

    async def attempt():
        try:
            return (await call(),)
        except httpx.HTTPError:
            return None

    return (await until(attempt, what))[0]


async def work(world: World, noted: list[int], rest: asyncio.Event, stop_after: int = NOTES) -> None:
    """Does one delivery of `coder`, the last of it when told to. One that stops in the middle is never finished. Repeats what
    had no answer."""

    async def take():
        return await world.call("coder", "GET", "/v1/inbox?wait=5s&turns=true")

    while not (taken := await patiently(take, "a delivery")).get("turn"):
        pass
    path = f"/v1/turns/{taken['turn']['id']}"
    for number in range(stop_after):
        if number == NOTES - LAST:
            await rest.wait()
        note = {"note": f"{taken['turn']['attempt']} note {number}"}
        await patiently(lambda: world.call("coder", "POST", f"{path}/progress", note), "a note")
        noted.append(number)
    if stop_after == NOTES:
        # Refused if a finish without an answer counted.
        await patiently(lambda: world.call("coder", "POST", f"{path}/finish", {"answer": "Done."}, refused=True), "a finish")


class Round:
    """One task, from the message to its end, with a kill in the middle."""

    def __init__(self, number: int, kind: str, near: World, far: World, runner, check: Checks):
        self.number, self.kind, self.near, self.far, self.runner, self.check = number, kind, near, far, runner, check
        self.agent = "partner" if kind in ("runner", "remote") else "coder"
        self.worker = far if self.agent == "partner" else near
        self.random = random.Random(f"{SEED} {number}")
        self.streams: list[list[dict]] = []
        self.noted: list[int] = []
        self.rest = asyncio.Event()

    def reading(self, task: str):
        binding = self.random.choice(BINDINGS)
        return [self.near.address(self.agent), self.near.tokens["caller"], binding, task]

    async def rpc(self, method: str, params: dict) -> dict:
        headers = {"Authorization": f"Bearer {self.near.tokens['caller']}", "A2A-Version": "1.0"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = (await self.near.http.post(self.near.address(self.agent), json=body, headers=headers)).json()
        assert "result" in answer, answer
        return answer["result"]

    async def read(self, task: str, broken: asyncio.Event, at: int) -> None:
        """Reads until `at` events came, tells so, and goes on as far as the stream goes."""
        seen: list[dict] = []
        self.streams.append(seen)
        try:
            async for event in events(*self.reading(task)):
                seen.append(event)
                if len(seen) == at:
                    broken.set()
        except BROKEN:
            if not seen:
                self.streams.remove(seen)
        finally:
            broken.set()

    async def read_and_die(self, task: str, at: int) -> None:
        """Reads in a process of its own, which is killed after `at` events."""
        reader = Process(sys.executable, HERE / "reader.py", *self.reading(task))
        seen = [json.loads(await reader.start())]
        self.streams.append(seen)
        while len(seen) < at and (line := await asyncio.wait_for(reader.process.stdout.readline(), 30)):
            seen.append(json.loads(line))
        await reader.kill()

    async def to_the_end(self, task: str) -> None:
        """Subscribes again until the task has ended."""

        async def ended():
            seen: list[dict] = []
            try:
                async for event in events(*self.reading(task)):
                    seen.append(event)
                    self.rest.set()
            except UnsupportedOperationError:
                return True
            except BROKEN:
                return False
            finally:
                if seen:
                    self.streams.append(seen)
            return state(seen[-1]) == "COMPLETED"

        await until(ended, "the end of the task")

    async def play(self, receiver: Receiver) -> Counter:
        push = {"url": receiver.url, "token": str(self.number)}
        message = {"messageId": f"kill-{self.number}", "role": "ROLE_USER", "parts": [{"text": "Do it."}]}
        configuration = {"returnImmediately": True, "taskPushNotificationConfig": push}
        sent = await self.rpc("SendMessage", {"message": message, "configuration": configuration})
        task = sent["task"]["id"]
        posted: list[dict] = []
        over = asyncio.Event()

        async def receive() -> None:
            while not over.is_set():
                headers, body = await receiver.posts.get()
                if headers["x-a2a-notification-token"] == str(self.number):
                    # As the SDK writes what it reads: a time without a fraction of a second has none.
                    posted.append(MessageToDict(ParseDict(body, StreamResponse())))
                    if state(body) in ("COMPLETED", "FAILED", "CANCELED"):
                        over.set()

        receiving = asyncio.create_task(receive())

        async def begun():
            return posted

        await until(begun, "the first notification")
        other = asyncio.create_task(self.observe(task)) if self.kind != "broker" else None
        if other:
            await until(lambda: self.observing(), "an undisturbed stream")
        left = await self.disturb(task, self.random.randrange(2, NOTES - LAST))
        await self.to_the_end(task)
        await asyncio.wait_for(asyncio.gather(*left), 60)
        await asyncio.wait_for(over.wait(), 60)
        receiving.cancel()
        undisturbed = await asyncio.wait_for(other, 30) if other else None
        return await self.judge(task, posted, undisturbed)

    async def observe(self, task: str) -> list[dict]:
        self.observed: list[dict] = []
        async for event in events(*self.reading(task)):
            self.observed.append(event)
        return self.observed

    async def observing(self) -> bool:
        return bool(getattr(self, "observed", None))

    async def disturb(self, task: str, at: int) -> list[asyncio.Task]:
        """Reads, works, and kills in the middle; returns what still runs."""
        broken = asyncio.Event()
        dies = self.kind == "client"
        reading = asyncio.create_task(self.read_and_die(task, at) if dies else self.read(task, broken, at))

        async def begun():
            return self.streams and self.streams[0]

        await until(begun, "the stream begins")
        stop_after = at if self.kind == "worker" else NOTES
        working = asyncio.create_task(work(self.worker, self.noted, self.rest, stop_after))
        if self.kind == "client":
            await reading
        elif self.kind == "broker":
            await asyncio.wait_for(broken.wait(), 30)
            await self.near.broker.kill()
            await self.near.begin()
        elif self.kind == "worker":
            await working
            self.rest.set()
            working = asyncio.create_task(work(self.worker, self.noted, self.rest))
        else:

            async def noted():
                return len(self.noted) >= at

            await until(noted, "the worker is in the middle")
            if self.kind == "runner":
                await self.runner.kill()
                await self.runner.start()
            else:
                await self.far.broker.kill()
                await self.far.begin()
            self.rest.set()
        if self.kind not in ("broker", "client"):
            await asyncio.wait_for(reading, 60)
        return [working, reading]

    async def judge(self, task: str, posted: list[dict], undisturbed: list[dict] | None) -> Counter:
        same, holds = self.check.same, self.check.holds
        whole: list[dict] = []
        for event in posted[1:]:
            if event not in whole:
                whole.append(event)
        times = [time(event) for event in whole]
        # An artifact has the time of the end, which follows.
        times = [at or times[place + 1] for place, at in enumerate(times)]
        holds(times == sorted(times), f"the posts of {task} are in order: {whole}")
        holds(state(whole[-1]) == "COMPLETED" and "artifactUpdate" in whole[-2], f"the last events: {whole[-2:]}")
        if self.agent == "coder":
            texts = [text for event in whole if (text := words(event)) and "note" in text]
            # A note whose answer was lost is repeated by the worker.
            once = [text for place, text in enumerate(texts) if place == 0 or texts[place - 1] != text]
            attempts = sorted({text.split()[0] for text in once})
            expected = [f"{attempts[-1]} note {number}" for number in range(NOTES)]
            same(once[-NOTES:], expected, "all that the worker said")
            holds(len(once) == NOTES or self.kind == "worker", once)
        last, lost = -1, 0
        for stream in self.streams:
            begun, *then = stream
            holds("task" in begun, f"a stream begins with the task: {begun}")
            places = [whole.index(event) for event in then]
            if places:
                same(places, list(range(places[0], places[0] + len(places))), "none lost, doubled or out of order")
                at = time(begun)
                holds(places[0] > last, f"{places[0]} came again after {last}")
                holds(all(times[place] <= at for place in range(places[0])), f"lost before {places[0]}, at {at}: {whole}")
                lost += places[0] - last - 1
                last = places[-1]
        lost += len(whole) - 1 - last
        final = MessageToDict(ParseDict(await self.rpc("GetTask", {"id": task}), Task()))
        same(final["status"], whole[-1]["statusUpdate"]["status"], "the task at the end")
        same(final["artifacts"], [whole[-2]["artifactUpdate"]["artifact"]], "its answer")
        if undisturbed is not None:
            begun, *then = undisturbed
            same(then, whole[len(whole) - len(then) :], "the undisturbed stream")
            holds(all(at <= time(begun) for at in times[: len(whole) - len(then)]), begun)
        return Counter(events=len(whole), streams=len(self.streams), between=lost, posted=len(posted))


def state(event: dict) -> str:
    place = event.get("task") or event.get("statusUpdate") or {}
    return place.get("status", {}).get("state", "none").removeprefix("TASK_STATE_")


def time(event: dict) -> datetime | None:
    place = event.get("task") or event.get("statusUpdate")
    return datetime.fromisoformat(place["status"]["timestamp"]) if place else None


def words(event: dict) -> str:
    parts = event.get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", [])
    return parts[0].get("text", "") if parts else ""


async def main() -> None:
    print(f"LASTWORD_A2A_SEED={SEED}", flush=True)
    check, found, kinds = Checks("kills"), Counter(), Counter()
    limits = {"roots_per_hour_max": 100_000, "lease_ms": 1500}
    near = World("near", ["coder", "partner"], **limits)
    far = World("far", ["coder"], **limits)
    async with near, far, Receiver() as receiver:
        for world in (near, far):
            await world.register("coder", "caller")
        token = near.directory / "far.token"
        token.write_text(far.tokens["caller"])
        words = ["run", "--json", "--driver", "a2a", "--as", "partner", "--progress", "1ms"]
        words += ["--token-file", near.operator_file, "--remote-token-file", token, "--", far.address()]
        async with Process(PROGRAM, *words, directory=near.directory, log=near.directory / "runner.log") as runner:
            order = random.Random(SEED).sample(KINDS, len(KINDS))
            for number in range(ROUNDS):
                kind = order[number % len(order)]
                played = Round(number, kind, near, far, runner, check)
                try:
                    found += await asyncio.wait_for(played.play(receiver), 120)
                except BaseException:
                    print(f"round {number}: {kind}", flush=True)
                    raise
                kinds[kind] += 1
            sent = await far.call("operator", "GET", "/v1/messages?type=request&to=coder&limit=500")
            check.same(len(sent["items"]), kinds["runner"] + kinds["remote"], "each request came once to the agent elsewhere")
    print(f"a2a kills: {sum(kinds.values())} ({', '.join(f'{kinds[kind]} {kind}' for kind in KINDS)}), {dict(found)}")
    check.told()


asyncio.run(main())

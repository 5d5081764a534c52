"""Agents made with both SDKs, as agents of a workspace: the driver for A2A asks them."""

import asyncio
import json
import sys
from pathlib import Path

from world import PROGRAM, WORK, Checks, Process, World, until

HERE = Path(__file__).parent
AGENTS = {
    "python": ([sys.executable, HERE / "agent.py"], HERE),
    "javascript": (["node", "agent.mjs"], WORK),
}


class Elsewhere:
    """A remote agent, and the program that runs it as `partner`."""

    def __init__(self, world: World, name: str, path: str = "/"):
        command, directory = AGENTS[name]
        self.world, self.path = world, path
        self.agent = Process(*command, directory=directory, log=world.directory / "agent.log")

    async def __aenter__(self):
        self.url = json.loads(await self.agent.start())["listening"]
        try:
            await self.run()
        except BaseException:
            await self.agent.kill()
            raise
        return self

    async def __aexit__(self, *failure):
        await self.runner.kill()
        await self.agent.kill()

    async def run(self) -> None:
        """Starts to run the agent, which takes up what another runner left."""
        words = ["--json", "run", "--driver", "a2a", "--as", "partner", "--concurrency", "8"]
        words += ["--token-file", self.world.operator_file, "--", self.url + self.path]
        log = self.world.directory / "runner.log"
        self.runner = Process(PROGRAM, *words, directory=self.world.directory, log=log)
        await self.runner.start()

    async def seen(self) -> list[dict]:
        return (await self.world.http.get(f"{self.url}/seen")).json()

    async def received(self, text: str) -> list[dict]:
        return [one for one in await self.seen() if one.get("text") == text]

    async def go(self, text: str) -> None:
        await self.world.http.post(f"{self.url}/go", content=text)

    async def ask(self, text: str) -> str:
        """Asks as a human; returns the id of the request."""
        self.world.next += 1
        body = {"type": "request", "to": "partner", "ref": f"T-{self.world.next}", "body": text}
        return (await self.world.call("operator", "POST", "/v1/messages", body))["request_id"]

    async def answered(self, request: str) -> dict:
        async def found():
            return (await self.world.call("operator", "GET", f"/v1/requests/{request}")).get("response")

        return await until(found, f"{request} is answered")

    async def question(self, request: str) -> dict:
        """What a human is asked for a request."""

        async def found():
            items = (await self.world.call("operator", "GET", "/v1/escalations"))["items"]
            return next((one for one in items if one.get("request_id") == request), None)

        return await until(found, f"a human is asked for {request}")


async def outcomes(there: Elsewhere, check: Checks) -> None:
    texts = ["complete", "chunks", "fail"]
    complete, chunks, fails = [await there.ask(text) for text in texts]
    answer = await there.answered(complete)
    check.same((answer["status"], answer["body"]), ("completed", "Done: complete"), "an artifact")
    answer = await there.answered(chunks)
    check.same((answer["status"], answer["body"]), ("completed", "one two three\n\nanother"), "chunks")
    answer = await there.answered(fails)
    check.same(answer["status"], "failed", "a failure")
    check.holds("It broke." in answer["reason"], answer)
    asked = await there.ask("ask")
    question = await there.question(asked)
    check.holds("Which one?" in question["message"], question)
    await there.world.answer(question["id"], "The second.")
    answer = await there.answered(asked)
    check.same((answer["status"], answer["body"]), ("completed", "You said: The second."), "a human's answer goes on")
    first, second = [one for one in await there.seen() if one.get("text") in ("ask", "The second.")]
    check.same(first["task"], second["task"], "with the same task")
    for text in texts:
        check.same(len(await there.received(text)), 1, f"{text} came once")


async def cancelled(there: Elsewhere, check: Checks) -> None:
    request = await there.ask("wait to be cancelled")

    async def received():
        return await there.received("wait to be cancelled")

    (one,) = await until(received, "it is asked")
    await there.world.call("operator", "POST", f"/v1/requests/{request}/cancel")

    async def told():
        return {"cancelled": one["task"]} in await there.seen()

    await until(told, "the task there is cancelled")
    check.same(await there.world.status(request), "cancelled", "ours, too")


async def killed(there: Elsewhere, check: Checks) -> None:
    text = "wait for another runner"
    request = await there.ask(text)

    async def noted():
        found = await there.world.call("operator", "GET", "/v1/messages?type=status&limit=500")
        return any(one["request_id"] == request and one["body"] == "Begun." for one in found["items"])

    # What the agent says is passed on once the task is kept.
    await until(noted, "the agent has begun")
    await there.runner.kill()
    await there.run()
    await there.go(text)
    answer = await there.answered(request)
    check.same((answer["status"], answer["body"]), ("completed", "Waited."), "a new runner follows the task")
    check.same(len(await there.received(text)), 1, "the message came once")


async def main() -> None:
    async with World("servers", [], lease_ms=1500) as world:
        for name in AGENTS:
            for path in ("/", "/plain/"):
                check = Checks(f"{name} server{'' if path == '/' else ' without streams'}")
                async with Elsewhere(world, name, path) as there:
                    await outcomes(there, check)
                    await cancelled(there, check)
                    await killed(there, check)
                check.told()


asyncio.run(main())

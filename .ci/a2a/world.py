"""A workspace of one's own: a broker with an agent that others may ask, its callers, and a worker that is driven by hand."""

import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "a2a"
PROGRAM = os.environ["LASTWORD"]
SECONDS_MAX = 120
# Callers ask often here, and the runs follow each other without a pause.
LIMITS = {
    "roots_per_hour_max": 40,
    "root_messages_per_day_max": 100_000,
    "pair_messages_max": 100_000,
    "sender_messages_max": 100_000,
    "turns_soft_max": 100_000,
    "turns_hard_max": 100_000,
    "progress_interval_ms": 1,
    "escalations_open_max": 64,
    "agent_turns_max": 8,
}


def surroundings() -> dict[str, str]:
    """The environment without anything that would configure the program."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LASTWORD")}


class Checks:
    """Counts what was compared; a difference ends the run."""

    def __init__(self, name: str):
        self.name, self.count = name, 0

    def same(self, found, expected, what: str = "") -> None:
        assert found == expected, f"{self.name}: {what}: {found!r} is not {expected!r}"
        self.count += 1

    def holds(self, condition, what) -> None:
        assert condition, f"{self.name}: {what}"
        self.count += 1

    def told(self) -> None:
        print(f"a2a {self.name}: {self.count} checks", flush=True)


async def until(found, what: str):
    """Asks again until the answer is one, and returns it."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not (answer := await found()):
                await asyncio.sleep(0.02)
            return answer
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


class Process:
    """A program that runs until the block ends, or it is killed."""

    def __init__(self, *command, directory=None, log=None):
        self.command, self.directory, self.log = [str(word) for word in command], directory, log
        self.process = None

    async def start(self) -> str:
        """Starts it; returns its first line."""
        errors = open(self.log, "ab") if self.log else None
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=self.directory,
            env=surroundings(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=1 << 22,
        )
        if errors:
            errors.close()
        async with asyncio.timeout(SECONDS_MAX):
            line = await self.process.stdout.readline()
        if not line:
            await self.kill()
            said = Path(self.log).read_text() if self.log else "nothing"
            raise AssertionError(f"{self.command} did not start: {said}")
        return line.decode()

    async def kill(self, how=signal.SIGKILL) -> int:
        if self.process.returncode is None:
            self.process.send_signal(how)
        async with asyncio.timeout(SECONDS_MAX):
            # What it still says is read, so that no pipe is full.
            await self.process.stdout.read()
            return await self.process.wait()

    async def __aenter__(self):
        self.first = await self.start()
        return self

    async def __aexit__(self, *failure):
        await self.kill()


class World:
    """A running broker in a directory of its own."""

    def __init__(self, name: str, publish: list[str], seats=(), **limits: int):
        self.name, self.publish, self.seats, self.limits = name, publish, seats, {**LIMITS, **limits}
        self.tokens: dict[str, str] = {}
        self.next = 0

    async def __aenter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="lastword-a2a-")
        self.directory = Path(self.temporary.name)
        lines = ["[a2a]", f"publish = {json.dumps(self.publish)}", "allow_private = true", "[seats]"]
        lines += [f'{name} = "operator"' for name in self.seats]
        lines += ["[limits]", *(f"{name} = {value}" for name, value in self.limits.items())]
        (self.directory / "lastword.toml").write_text("\n".join(lines) + "\n")
        self.http = httpx.AsyncClient(timeout=SECONDS_MAX, limits=httpx.Limits(max_connections=None))
        self.broker, self.port = None, 0
        await self.begin()
        return self

    async def begin(self) -> None:
        """Starts the broker; the second time at the same address."""
        log = self.directory / "errors.log"
        listen = f"127.0.0.1:{self.port}"
        self.broker = Process(PROGRAM, "serve", "--listen", listen, "--json", directory=self.directory, log=log)
        first = json.loads(await self.broker.start())
        self.url = first["listening"]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.operator_file = self.directory / first["operator_token_file"]
        self.tokens["operator"] = self.operator_file.read_text().strip()

    async def __aexit__(self, *failure):
        code = await self.broker.kill(signal.SIGTERM)
        await self.http.aclose()
        said = (self.directory / "errors.log").read_text()
        if failure[0] is not None:
            print(f"-- the broker of {self.name} said:\n{said[-4000:]}")
        self.temporary.cleanup()
        assert failure[0] is not None or code == 0, f"the broker ended with {code}: {said}"

    def address(self, agent: str = "coder") -> str:
        return f"{self.url}/a2a/{agent}/"

    async def call(self, who: str, method: str, path: str, body=None, turn: str | None = None, refused=False):
        """One call of the broker's own API; what it gives has to be a success."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        if turn:
            headers["Lastword-Turn"] = turn
        answer = await self.http.request(method, self.url + path, json=body, headers=headers)
        assert refused or answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def register(self, *names: str, **more) -> None:
        for name in names:
            made = await self.call("operator", "POST", "/v1/agents", {"name": name, **more})
            self.tokens[name] = made["token"]

    async def take(self, who: str = "coder") -> dict:
        """The worker's next delivery."""
        taken = await self.call(who, "GET", "/v1/inbox?wait=20s&turns=true")
        assert taken and taken.get("turn"), f"nothing came: {taken}"
        return taken

    async def note(self, delivery: dict, note: str, who: str = "coder") -> None:
        await self.call(who, "POST", f"/v1/turns/{delivery['turn']['id']}/progress", {"note": note})

    async def finish(self, delivery: dict, who: str = "coder", **finish) -> None:
        await self.call(who, "POST", f"/v1/turns/{delivery['turn']['id']}/finish", finish)

    async def hold(self, delivery: dict, tool: str, who: str = "coder") -> dict:
        body = {"tool": tool, "arguments": {"x": 1}}
        return await self.call(who, "POST", "/v1/approvals", body, turn=delivery["turn"]["token"])

    async def decide(self, held: dict) -> None:
        decision = {"decision": "approve", "digest": held["digest"]}
        await self.call("operator", "POST", f"/v1/approvals/{held['id']}/decision", decision)

    async def ask(self, delivery: dict, question: str, who: str = "coder") -> dict:
        """Asks as the worker, whose turn waits then."""
        asked = await self.call(who, "POST", "/v1/escalations", {"message": question}, turn=delivery["turn"]["token"])
        await self.finish(delivery, who, answer="", status="waiting")
        return asked

    async def answer(self, escalation: str, answer: str) -> None:
        await self.call("operator", "POST", f"/v1/escalations/{escalation}/answer", {"answer": answer})

    async def status(self, request_id: str) -> str:
        return (await self.call("operator", "GET", f"/v1/requests/{request_id}")).get("status", "none")


class Receiver:
    """Receives what is posted to it, such as push notifications."""

    async def __aenter__(self):
        self.posts: asyncio.Queue = asyncio.Queue()
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/hook"
        return self

    async def __aexit__(self, *failure):
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = [line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line]
            headers = {name.strip().lower(): value.strip() for name, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.posts.put_nowait((headers, json.loads(body)))
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def take(self) -> tuple[dict, dict]:
        return await asyncio.wait_for(self.posts.get(), SECONDS_MAX)

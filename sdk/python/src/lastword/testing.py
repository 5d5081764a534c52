"""A broker for tests: the program on a free port, in a directory of its own. Also as the pytest fixture `lastword`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .agent import Agent
from .client import Client
from .errors import LastwordError
from .turn import Turn
from .wire import StoredMessage

STOP_SECONDS_MAX = 20


class Broker:
    """A running broker; ends with its block. `LASTWORD_PROGRAM` names the program, otherwise it is found by `PATH`."""

    def __init__(self, config: str = "", *, program: str | Path | None = None) -> None:
        found = program or os.environ.get("LASTWORD_PROGRAM") or shutil.which("lastword")
        if found is None:
            raise LastwordError("`lastword` is not installed: set LASTWORD_PROGRAM to the program")
        self._program = Path(found)
        self._config = config
        self._directory = tempfile.TemporaryDirectory(prefix="lastword-")
        self._process: subprocess.Popen[str] | None = None
        self._address = "127.0.0.1:0"
        self.url = ""
        self.operator = ""
        """The token of the first human."""

    def __enter__(self) -> Self:
        (Path(self._directory.name) / "lastword.toml").write_text(self._config)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS_MAX)
        self._directory.cleanup()

    def start(self) -> None:
        """Starts the program, at the address that it had before."""
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORD_")}
        self._process = subprocess.Popen(
            [self._program, "serve", "--listen", self._address, "--json"],
            cwd=self._directory.name,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LastwordError(f"the broker did not start in {self._directory.name}")
        first: dict[str, Any] = json.loads(line)
        self.url = first["listening"]
        self._address = self.url.removeprefix("http://")
        self.operator = (Path(self._directory.name) / first["operator_token_file"]).read_text().strip()

    def kill(self) -> None:
        """Ends the program without warning (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def human(self) -> Client:
        """The first human, for single calls."""
        return Client(self.url, self.operator)

    def agent(self, name: str, **more: Any) -> str:
        """Registers an agent; returns its token."""
        with self.human() as human:
            token: str = human.call("POST", "/agents", body={"name": name, **more})["token"]
        return token

    @contextlib.asynccontextmanager
    async def scripted(self, name: str, answers: Iterable[Any], **more: Any) -> AsyncGenerator[list[StoredMessage]]:
        """An agent that gives these answers, one a request, while the block runs. Yields the requests that it got.

        An answer is what a handler returns; an exception fails its request.
        """
        agent, script, asked = Agent(self.url, self.agent(name, **more)), iter(answers), list[StoredMessage]()

        @agent.on_request()
        async def answer(turn: Turn) -> Any:
            asked.append(turn.message)
            following = next(script, LastwordError(f"the script of {name} has no answer {len(asked)}"))
            if isinstance(following, Exception):
                raise following
            return following

        serving = asyncio.create_task(agent.serve())
        try:
            yield asked
        finally:
            agent.stop()
            await serving

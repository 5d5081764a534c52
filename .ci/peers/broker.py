"""A broker of one's own for a step: started on a free port and a temporary directory, ended by its process id."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
BINARY = os.environ.get("LASTWORD") or ROOT / TARGET / "debug" / "lastword"
# The server with the surface that the conformance suite calls: an example, which `cargo tests` builds.
FIXTURES = [ROOT / TARGET / "debug" / "examples" / "mcp_fixtures"]
STOP_SECONDS_MAX = 20
CALL_SECONDS_MAX = 30


def surroundings():
    """The environment without anything that would configure the program."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LASTWORD_")}


class Broker:
    """A running server; ends when the block does, and has to end well."""

    def __init__(self, config="", *flags, program=None):
        self._config = config
        self._command = program or [BINARY, "serve", "--listen", "127.0.0.1:0", "--json", *flags]

    def __enter__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="lastword-peers-")
        self.directory = Path(self._directory.name)
        (self.directory / "lastword.toml").write_text(self._config)
        self._errors = open(self.directory / "errors.log", "w+")
        self.process = subprocess.Popen(
            self._command,
            cwd=self.directory,
            env=surroundings(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {self.said()}")
        first = json.loads(line)
        self.url = first["listening"]
        self.operator = (self.directory / first["operator_token_file"]).read_text().strip()
        return self

    def __exit__(self, *failure):
        ended_early = self.process.poll()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none in time"
        said = self.said()
        self._errors.close()
        self._directory.cleanup()
        if failure[0] is None and (ended_early is not None or code != 0):
            raise RuntimeError(f"the server ended with {code}: {said}")

    def said(self):
        """What it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def call(self, method, path, token=None, **rest):
        """One call; what it gives has to be a success."""
        headers = {"Authorization": f"Bearer {token or self.operator}", **rest.pop("headers", {})}
        answer = requests.request(method, self.url + path, headers=headers, timeout=CALL_SECONDS_MAX, **rest)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def agent(self, name, **more):
        """Registers an agent; gives its token."""
        return self.call("POST", "/v1/agents", json={"name": name, **more})["token"]

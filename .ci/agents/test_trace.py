"""A human's word through a planner, Claude Code and Codex is one trace: a collector and a receiver take what the broker and the
programs export, and find each program's own spans inside its turn."""

import json
import os
import pathlib
import random
import re
import socket
import subprocess
import threading
import time
import unittest
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from test_programs import CLAUDE, CODEX, LASTWORD, Workspace, until

PYTHON = os.environ["RECEIVERS"] + "/bin/python"
# How often the broker is killed.
KILLS = int(os.environ.get("LASTWORD_TRACE_KILLS", "8"))
# How many seconds the receiver is away: 3600 for an hour.
OUTAGE = float(os.environ.get("LASTWORD_TRACE_OUTAGE", "5"))
# A word of every text: it must stay here.
TEXT = "xyzzy"
PLANNER = f"""case "$LASTWORD_FROM" in
operator) "{LASTWORD}" send coder 'call: ^Bash$ {{"command": "touch {TEXT}", "description": "x"}}' >&2 ;;
coder) "{LASTWORD}" send reviewer 'say: {TEXT} is fine' >&2 ;;
reviewer) echo '{TEXT} is done' ;;
esac"""


def free_port():
    """Returns a free port below those that the kernel gives out, so that no connection takes it before its server does."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def listens(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


class Relay(ThreadingHTTPServer):
    """Passes each post on to both receivers, and keeps it by who sent it: the first part of its path."""

    daemon_threads = True

    def __init__(self, receivers):
        super().__init__(("127.0.0.1", 0), RelayHandler)
        self.receivers, self.posts, self.refuses = receivers, [], False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """A program that is killed drops its connection."""

    def address(self, sender):
        return f"http://127.0.0.1:{self.server_port}/{sender}"


class RelayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        sender, path = self.path[1:].split("/", 1)
        if self.server.refuses:
            self.answer(503)
            return
        self.server.posts.append((sender, path, body))
        headers = {name: self.headers[name] for name in ("content-type", "content-encoding") if name in self.headers}
        for receiver in self.server.receivers:
            with urllib.request.urlopen(urllib.request.Request(f"{receiver}/{path}", body, headers)) as taken:
                assert taken.status == 200, taken
        self.answer(200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


class Trace(unittest.TestCase):
    def receiver(self, port, *line):
        """Starts a receiver that listens at a port; returns its output, which grows."""
        started = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: (started.terminate(), started.wait(30), started.stdout.close()))
        lines = []
        threading.Thread(target=lambda: lines.extend(started.stdout), daemon=True).start()
        until(f"{line[0]} at {port}", lambda: listens(port) or started.poll() is not None)
        self.assertIsNone(started.poll(), f"{line} ended: {''.join(lines)}")
        return lines

    def setUp(self):
        tap, collector, grpc = free_port(), free_port(), free_port()
        self.tapped = self.receiver(tap, PYTHON, "-u", "-m", "oteltap", "--port", str(tap))
        agent = next(pathlib.Path(PYTHON).parent.parent.glob("lib/python3*/site-packages/rotel/rotel-agent"))
        self.collected = self.receiver(
            collector,
            agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{collector}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
            "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed", "--batch-timeout", "200ms")
        self.relay = Relay([f"http://127.0.0.1:{port}" for port in (tap, collector)])
        self.addCleanup(lambda: (self.relay.shutdown(), self.relay.server_close()))
        self.space = Workspace(f'[telemetry]\nendpoint = "{self.relay.address("lastword")}"\n')
        self.addCleanup(self.space.close)
        self.space.configure()
        (self.space.home / ".claude/settings.json").write_text("{}")
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n[otel.trace_exporter.otlp-http]\n'
                         f'endpoint = "{self.relay.address("codex")}/v1/traces"\nprotocol = "binary"\n')
        self.space.more = {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1", "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1", "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": self.relay.address("claude"),
        }
        subprocess.run([LASTWORD, "init", "--from-env", "--claude", "--tools", "core,approve_tool_use"], check=True,
                       env=self.space.environment(), cwd=self.space.work, capture_output=True)

    def spans(self):
        return {span["spanId"]: span for span in map(json.loads, filter(lambda line: line[0] == "{", list(self.tapped)))
                if "spanId" in span}

    def test_a_request_through_claude_and_codex_is_one_trace(self):
        space = self.space
        space.run("planner", ["sh", "-c", PLANNER])
        space.run("coder", [CLAUDE, "-p", "--permission-prompt-tool", "mcp__lastword__approve_tool_use"], "--input", "prompt")
        space.run("reviewer", [CODEX, "exec", "--skip-git-repo-check", "-"], "--input", "prompt")
        space.lastword("send", "planner", f"{TEXT}, please", "--ref", "E-1")
        call = space.pending()
        space.lastword("approve", call["id"], "--yes", "--digest", call["digest"])
        self.assertEqual(space.answer()["body"].strip(), f"{TEXT} is done")

        until("the human's request", lambda: any(
            span["name"] == "send planner" and not span["parentSpanId"] for span in self.spans().values()))
        # A program's spans come once it ends.
        until("Codex's spans", lambda: any(sender == "codex" for sender, *_ in list(self.relay.posts)))
        spans = self.spans()

        def above(span):
            while span := spans.get(span["parentSpanId"]):
                yield span["name"]

        def path(span):
            return " > ".join([*reversed(list(above(span))), span["name"]])

        ours = [span for span in spans.values() if span["attributes"] and any(
            mark["key"].startswith(("messaging.", "lastword.")) for mark in span["attributes"])]
        turn = "send planner > process planner"
        coder, reviewer = f"{turn} > send coder > process coder", f"{turn} > send reviewer > process reviewer"
        self.assertEqual(Counter(map(path, ours)), Counter({
            "send planner": 1, turn: 3, f"{turn} > send coder": 1, coder: 1, f"{coder} > claim": 1,
            f"{coder} > approval Bash": 1,
            f"{coder} > send planner": 1, f"{turn} > send reviewer": 1, reviewer: 1, f"{reviewer} > send planner": 1,
            f"{turn} > send operator": 1}))
        self.assertEqual({span["traceId"] for span in ours}, {space.json("tree", "E-1")["grants"][0]["trace"]})
        for name, program in ((" > process coder", "claude_code.interaction"), (" > process reviewer", "codex")):
            held = {span["spanId"] for span in ours if path(span).endswith(name)}
            inner = [span for span in spans.values() if span["parentSpanId"] in held and span not in ours]
            self.assertTrue(any(program in json.dumps(span) for span in inner), (name, inner))
        linked = next(span for span in ours if path(span) == coder)["links"]
        asked = next(span for span in ours if path(span) == f"{turn} > send coder")
        self.assertEqual([link["spanId"] for link in linked], [asked["spanId"]])

        until("the collector's spans", lambda: "approval Bash" in "".join(self.collected))
        told = [(path, body) for sender, path, body in self.relay.posts if sender == "lastword"]
        self.assertFalse([path for path, body in told if TEXT.encode() in body], "no text leaves")


    def test_no_span_is_lost_over_kills_and_refusals(self):
        space, sent = self.space, 0
        space.run("echo", ["cat"])
        for kill in range(KILLS):
            self.relay.refuses = kill % 3 == 1
            for _ in range(3):
                sent += 1
                asked = space.lastword("send", "echo", TEXT, "--ref", f"K-{sent}")
                self.assertEqual(asked.returncode, 0, asked)
            # The pause is the load's time, not a condition: the kill may come at any moment of it.
            time.sleep(random.uniform(0, 0.5))
            space.server.kill()
            space.server.wait()
            space.serve()
        self.relay.refuses = False

        def named(name):
            return [span for span in self.spans().values() if span["name"] == name]

        until("each request and its answer", lambda: len(named("send echo")) == len(named("send operator")) == sent)
        requests, turns = ({span["spanId"] for span in named(name)} for name in ("send echo", "process echo"))
        self.assertLessEqual({span["parentSpanId"] for span in named("process echo")}, requests)
        self.assertLessEqual({span["parentSpanId"] for span in named("send operator")}, turns)
        # The spans of a crash's last second come again: as they were, under the same ids.
        tapped = {json.dumps(json.loads(line), sort_keys=True) for line in self.tapped if line.startswith('{"traceId')}
        self.assertEqual(len(tapped), len(self.spans()))

    def test_a_long_outage_loses_and_doubles_nothing(self):
        space, sent = self.space, 0
        space.run("echo", ["cat"])
        state, status = space.data / "telemetry.state", pathlib.Path(f"/proc/{space.server.pid}/status")

        def size():
            resident = int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1])
            return f"{sent} requests, {resident / 1024:.0f} MiB in memory, {state.stat().st_size} bytes of {state.name}"

        self.relay.refuses, begin, shown = True, time.monotonic(), 0
        while (away := time.monotonic() - begin) < OUTAGE:
            sent += 1
            asked = space.lastword("send", "echo", TEXT, "--ref", f"O-{sent}")
            self.assertEqual(asked.returncode, 0, asked)
            if away >= shown:
                print(f"away for {away:.0f} s: {size()}", flush=True)
                shown += max(OUTAGE / 12, 1)
            # The pause is the load's rate, not a condition.
            time.sleep(0.25)
        self.relay.refuses, back = False, time.monotonic()

        def named(name):
            return [span for span in self.spans().values() if span["name"] == name]

        until("each request, turn and answer", lambda: all(
            len(named(name)) == sent for name in ("send echo", "process echo", "send operator")))
        print(f"back for {time.monotonic() - back:.1f} s: {size()}")
        tapped = [line for line in self.tapped if line.startswith('{"traceId')]
        self.assertEqual(len(tapped), len(self.spans()), "a span comes twice")


if __name__ == "__main__":
    unittest.main(verbosity=2)

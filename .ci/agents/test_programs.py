"""Real agent programs under Lastword, driven by a scripted model: who is held, what is offered, what comes back."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

from model import Model

LASTWORD = os.environ["LASTWORD"]
MODULES = pathlib.Path(os.environ["MODULES"])
CLAUDE = MODULES / "@anthropic-ai/claude-code-linux-x64/claude"
CODEX = MODULES / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
# Its successor has the same name among the commands.
CODEX_ACP = MODULES / "@zed-industries/codex-acp/bin/codex-acp.js"
OPENCODE = MODULES / "opencode-linux-x64/bin/opencode"
CHANNELS = {"ListAgents", "SendMessage", "CronCreate", "ScheduleWakeup", "Monitor"}
CODEX_CHANNELS = re.compile("multi_agent|goal|spawn_agent|followup_task|send_message|wait_agent")
TOUCH = 'call: ^Bash$ {"command": "touch made", "description": "x"}'
CLAUDE_ALLOWS = {"permissions": {"allow": ["Bash", "Write"]}}
CODEX_ALLOWS = 'prefix_rule(pattern=["touch"], decision="allow")\n'
OPENCODE_ALLOWS = {"permission": {"*": "allow", "bash": "allow"},
                   "agent": {"build": {"permission": {"*": "allow", "bash": "allow"}}}}
# What Codex's sandbox doesn't hold back, but its user.
ESCALATED = 'call: exec_command {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "x"}'
# An MCP server of a user with one tool, which makes a file in the folder of its program.
SERVER = """import json, os, sys
os.chdir(os.environ.get("FOLDER", "."))
tool = {"name": "touch", "description": "makes a file", "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params", {})
    if method == "initialize":
        said = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "files", "version": "1"}}
    elif method == "tools/list":
        said = {"tools": [tool]}
    elif method == "tools/call":
        open(params["arguments"]["name"], "w").close()
        said = {"content": [{"type": "text", "text": "made"}]}
    else:
        said = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""
TOUCH_BY_SERVER = 'call: files.*touch {"name": "touch made"}'
# Text that only a program's dialog shows. Lastword's warnings and the messages that Codex shows have words such as "proceed".
DIALOG = b"proceed\\?|app=codex:kind=permission|Permission required|Allow execution"
PATIENCE = 300


def looked(look, patience=5):
    """Whether it finds something: a program drops a key that it gets before it listens, and is given it again."""
    end = time.monotonic() + patience
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def until(what, look, patience=PATIENCE):
    """Looks until it finds something; the limit only bounds a failure."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} never came; {machine()}")


def machine():
    """What this machine did meanwhile: a program that hangs is told from one that gets no processor."""
    load = pathlib.Path("/proc/loadavg").read_text().strip()
    listing = subprocess.run(["ps", "-eo", "pid,ppid,stat,etimes,cputimes,wchan:20,args"], capture_output=True, text=True)
    return "\n".join([f"load {load}", *(line[:150] for line in listing.stdout.splitlines() if " I " not in line)])


def closed_folder():
    """Returns a new folder to whose parents only their owners may write: Gemini CLI reads no settings below /tmp."""
    candidates = [MODULES.parent, pathlib.Path.home(), os.environ.get("XDG_RUNTIME_DIR"), "/run"]
    for folder in [pathlib.Path(name).resolve() for name in candidates if name]:
        if os.access(folder, os.W_OK) and not any(above.stat().st_mode & 0o022 for above in [folder, *folder.parents]):
            return tempfile.mkdtemp(dir=folder)
    raise AssertionError("no folder to whose parents nobody else may write: set HOME to one")


class Workspace:
    """A broker, a model, and an empty home for the programs."""

    def __init__(self, config=""):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.model = Model()
        self.home, self.work, self.data = self.dir / "home", self.dir / "work", self.dir / "data"
        self.home.mkdir()
        self.work.mkdir()
        self.processes, self.runners = [], {}
        self.more = {}
        self.config = self.dir / "lastword.toml"
        self.config.write_text(config)
        self.server, self.address = None, "127.0.0.1:0"
        self.serve()
        self.token = self.data / "operator.token"

    def serve(self):
        """Starts the broker, again at the same address if it ran before."""
        line = [LASTWORD, "--config", self.config, "--data", self.data, "--json", "serve", "--listen", self.address]
        self.server = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.processes.append(self.server)
        self.address = json.loads(self.server.stdout.readline())["listening"].removeprefix("http://")

    def environment(self):
        """The environment of every program: nothing of this machine's user."""
        return {
            "HOME": str(self.home), "PATH": f"{MODULES}/node/bin:{self.dir}/bin:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color", "LASTWORD_DATA": str(self.data),
            "ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": "mock", "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_EXECUTABLE": str(CLAUDE), "MOCK_KEY": "mock",
            "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "GEMINI_API_KEY": "mock", "GOOGLE_GEMINI_BASE_URL": self.model.url, "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_MODEL": "gemini-2.5-pro", **self.more,
        }

    def configure(self):
        """Users' own settings: each program has a model, and may use its shell unasked."""
        (self.home / ".claude").mkdir()
        (self.home / ".claude/settings.json").write_text('{"permissions": {"allow": ["Bash"]}}')
        (self.home / ".claude.json").write_text(json.dumps({
            "hasCompletedOnboarding": True, "theme": "dark",
            "customApiKeyResponses": {"approved": ["mock"], "rejected": []},
            "projects": {str(self.work): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        }))
        (self.home / ".codex").mkdir()
        (self.home / ".codex/config.toml").write_text(
            'model = "mock"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
            f'base_url = "{self.model.url}/v1"\nenv_key = "MOCK_KEY"\nwire_api = "responses"\n')
        (self.home / ".gemini").mkdir()
        (self.home / ".gemini/settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
        options = {"baseURL": f"{self.model.url}/v1", "apiKey": "mock"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock": {}}}
        (self.work / "opencode.json").write_text(json.dumps(
            {"provider": {"mock": provider}, "model": "mock/mock", "permission": {"bash": "allow"}}))

    def allow(self):
        """What people allow in a year: the shell, by every rule that a program knows."""
        self.allow_by_user()
        self.allow_by_project()

    def allow_by_user(self):
        (self.home / ".claude/settings.json").write_text(json.dumps(CLAUDE_ALLOWS))
        (self.home / ".codex/rules").mkdir()
        (self.home / ".codex/rules/default.rules").write_text(CODEX_ALLOWS)
        (self.home / ".gemini/policies").mkdir()
        (self.home / ".gemini/policies/mine.toml").write_text(
            '[[rule]]\ntoolName = "run_shell_command"\ndecision = "allow"\npriority = 999\n')
        self.amend(self.home / ".gemini/settings.json", {"tools": {"allowed": ["run_shell_command"]}})
        self.amend(self.home / ".config/opencode/opencode.json", OPENCODE_ALLOWS)

    def allow_by_project(self, rules=False):
        """The same in the project's own files; Codex's `rules` stop a held run at its start."""
        self.amend(self.work / ".claude/settings.json", CLAUDE_ALLOWS)
        self.amend(self.work / ".gemini/settings.json", {"tools": {"allowed": ["run_shell_command"]}})
        self.amend(self.work / "opencode.json", OPENCODE_ALLOWS)
        if rules:
            (self.work / ".codex/rules").mkdir(parents=True)
            (self.work / ".codex/rules/default.rules").write_text(CODEX_ALLOWS)

    def allow_server(self, codex='default_tools_approval_mode = "approve"\n'
                     '[mcp_servers.files.tools.touch]\napproval_mode = "approve"\n'):
        """A server of the user's, whose tools each program that knows such a setting runs unasked."""
        server = self.dir / "files.py"
        server.write_text(SERVER)
        with open(self.home / ".codex/config.toml", "a") as config:
            config.write(f'[mcp_servers.files]\ncommand = "python3"\nargs = ["{server}"]\ncwd = "{self.work}"\n{codex}')
        files = {"command": "python3", "args": [str(server)], "env": {"FOLDER": str(self.work)}}
        self.amend(self.home / ".claude.json", {"mcpServers": {"files": files}})
        self.amend(self.home / ".claude/settings.json", {"permissions": {"allow": ["Bash", "mcp__files__touch"]}})
        trusted = {"command": "python3", "args": [str(server)], "cwd": str(self.work), "trust": True}
        self.amend(self.home / ".gemini/settings.json", {"mcpServers": {"files": trusted}})

    @staticmethod
    def amend(file, members):
        file.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**known, **members}))

    def lastword(self, *args):
        command = [LASTWORD, "--token-file", str(self.token), *args]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)

    def json(self, *args):
        ended = self.lastword("--json", *args)
        # 4: an answer that isn't `completed`.
        assert ended.returncode in (0, 4), ended
        return json.loads(ended.stdout)

    def run(self, name, command, *flags):
        """Starts `lastword run`; returns its events, which grow."""
        line = [LASTWORD, "--token-file", str(self.token), "--json", "run", "--as", name, "--cwd", str(self.work), *flags]
        started = subprocess.Popen([*line, "--", *map(str, command)], env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(started)
        self.runners[name] = started
        events = []

        def read():
            for text in started.stdout:
                events.append(json.loads(text))

        threading.Thread(target=read, daemon=True).start()
        until(f"{name} ready", lambda: any(event["event"] == "ready" for event in events)
              or (started.poll() is not None and self.fail(started)))
        return events

    @staticmethod
    def fail(process):
        raise AssertionError(process.stderr.read())

    def answer(self):
        delivery = self.json("inbox", "--wait", f"{PATIENCE}s")
        return delivery["message"]

    def pending(self):
        return until("a held call", lambda: self.json("approvals")["items"])[0]

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(timeout=30)
        self.model.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Programs(unittest.TestCase):
    def setUp(self):
        self.space = Workspace()
        self.addCleanup(self.space.close)
        self.space.configure()

    def offered(self):
        names = [set(request["tools"]) for request in self.space.model.requests()]
        self.assertTrue(names, "the model was asked")
        return set().union(*names)

    def held(self, command, touch, tool):
        """A call waits for a human although the user's settings allow it: rejected once, approved once."""
        self.space.allow()
        self.space.run("bob", command, "--driver", "acp")
        made = self.space.work / "made"
        self.space.lastword("send", "bob", touch, "--ref", "E-1")
        call = self.space.pending()
        self.assertEqual(call["tool"], tool)
        self.space.lastword("reject", call["id"], "--yes", "--comment", "not before noon")
        self.space.answer()
        self.assertFalse(made.exists(), "rejected")
        self.assertIn("not before noon", self.space.model.heard())
        self.space.lastword("send", "bob", touch, "--ref", "E-2")
        call = self.space.pending()
        approved = self.space.lastword("approve", call["id"], "--yes", "--digest", call["digest"])
        self.assertEqual(approved.returncode, 0, approved)
        self.assertIn("done", self.space.answer()["body"])
        # Codex answers its model before a slow command has ended.
        until("the approved file", made.exists)

    def server_held(self, command, allowed=True):
        if allowed:
            self.space.allow_server()
        self.space.run("bob", command, "--driver", "acp")
        self.space.lastword("send", "bob", TOUCH_BY_SERVER, "--ref", "E-1")
        call = self.space.pending()
        self.space.lastword("reject", call["id"], "--yes")
        self.space.answer()
        self.assertFalse((self.space.work / "touch made").exists(), call)

    def test_what_servers_do_for_codex_over_acp_is_held(self):
        self.server_held(["node", CODEX_ACP])

    def test_what_servers_do_for_claude_over_acp_is_held(self):
        self.server_held([MODULES / ".bin/claude-agent-acp"])

    def test_claude_over_acp_is_held_in_a_linked_worktree(self):
        # The program also reads the local settings of the main one.
        self.space.allow_server()
        self.space.amend(self.space.home / ".claude/settings.json", {"permissions": {}})
        main = self.space.dir / "main"
        git = ["git", "-C", main, "-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "init", "-q", main], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        shutil.rmtree(self.space.work)
        subprocess.run([*git, "worktree", "add", "-q", self.space.work], check=True)
        allows = {"permissions": {"allow": ["mcp__files__touch"]}}
        self.space.amend(main / ".claude/settings.local.json", allows)
        self.server_held([MODULES / ".bin/claude-agent-acp"], allowed=False)

    def test_claude_over_acp_refuses_a_hook_that_answers_its_dialogs(self):
        allow = json.dumps({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}})
        hook = {"hooks": [{"type": "command", "command": f"echo '{allow}'"}]}
        self.space.amend(self.space.home / ".claude/settings.json", {"hooks": {"PermissionRequest": [hook]}})
        with self.assertRaisesRegex(AssertionError, "PermissionRequest hook in .*settings.json"):
            self.space.run("bob", [MODULES / ".bin/claude-agent-acp"], "--driver", "acp")
        self.space.run("amy", [MODULES / ".bin/claude-agent-acp"], "--driver", "acp", "--unheld")
        self.space.lastword("send", "amy", TOUCH, "--ref", "E-1")
        self.assertIn("done", self.space.answer()["body"], "as its settings have it")
        self.assertTrue((self.space.work / "made").exists())

    def test_what_servers_do_for_the_successor_of_codex_acp_is_held(self):
        self.server_held(["node", MODULES / "@successor/codex-acp/dist/index.js"])

    def test_claude_over_acp_is_held(self):
        self.held([MODULES / ".bin/claude-agent-acp"], TOUCH, "Bash")
        self.assertFalse(CHANNELS & self.offered(), "no channel past the broker")

    def test_claude_over_acp_defers_no_tool_of_lastword(self):
        self.space.run("bob", [MODULES / ".bin/claude-agent-acp"], "--driver", "acp", "--env", "ENABLE_TOOL_SEARCH=true")
        self.space.lastword("send", "bob", "which port?", "--ref", "E-1")
        self.space.answer()
        offered = self.offered()
        self.assertIn("ToolSearch", offered, "the search is on")
        self.assertIn("mcp__lastword__finish_turn", offered)

    def test_opencode_over_acp_is_held(self):
        self.held([OPENCODE, "acp"], TOUCH.replace("^Bash$", "^bash$"), "execute")
        self.assertNotIn("task", self.offered())

    def test_codex_over_acp_is_held(self):
        self.held(["node", CODEX_ACP], 'call: exec_command {"cmd": "touch made"}', "execute")
        self.assertFalse([name for name in self.offered() if "agent" in name and "lastword" not in name])

    def test_claude_answers_in_prose_without_channels(self):
        self.space.run("bob", [CLAUDE, "-p"], "--input", "prompt")
        self.space.lastword("send", "bob", "which port?", "--ref", "E-1")
        answer = self.space.answer()
        self.assertEqual((answer["body"], answer["status"]), ("done: nothing to call", "completed"))
        offered = self.offered()
        self.assertFalse(CHANNELS & offered, offered)
        self.assertIn("Agent", offered, "a sub-agent is the turn's own affair")

    def test_codex_answers_in_prose_without_sub_agents(self):
        self.space.run("bob", [CODEX, "exec", "--skip-git-repo-check", "-"], "--input", "prompt")
        self.space.lastword("send", "bob", "which port?", "--ref", "E-1")
        self.assertIn("done: nothing to call", self.space.answer()["body"])
        self.assertFalse(list(filter(CODEX_CHANNELS.search, self.offered())))

    def test_the_successor_of_codex_acp_is_held(self):
        # What leaves its sandbox is asked for; inside of it nothing can be changed.
        self.held(["node", MODULES / "@successor/codex-acp/dist/index.js"], ESCALATED, "execute")
        self.assertFalse(list(filter(CODEX_CHANNELS.search, self.offered())))

    def test_gemini_over_acp_is_held(self):
        self.held([MODULES / ".bin/gemini", "--acp"], TOUCH.replace("^Bash$", "run_shell_command"), "execute")

    def test_gemini_answers_in_prose(self):
        self.space.run("bob", [MODULES / ".bin/gemini"], "--input", "prompt", "--env", "GEMINI_CLI_TRUST_WORKSPACE=true")
        self.space.lastword("send", "bob", "which port?", "--ref", "E-1")
        self.assertIn("done: nothing to call", self.space.answer()["body"])

    def session(self, program, path, *args, name="bob"):
        """Starts `lastword PROGRAM --as NAME` in a terminal; returns a function that types a line or a part of one."""
        (self.space.dir / "bin").mkdir(exist_ok=True)
        if not (self.space.dir / "bin" / program).exists():
            (self.space.dir / "bin" / program).symlink_to(path)
        terminal, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        command = [LASTWORD, "--token-file", str(self.space.token), program, "--as", name, *args]
        session = subprocess.Popen(command, env=self.space.environment(), cwd=self.space.work, stdin=other, stdout=other,
                                   stderr=other, start_new_session=True)
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, other)
        self.launcher = session
        self.leave = lambda: (session.terminate(), session.wait())

        def end():
            try:
                os.killpg(session.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            session.wait()

        self.addCleanup(end)

        self.shown, over = bytearray(), threading.Event()

        def drain(shown=self.shown):
            while not over.is_set():
                if select.select([terminal], [], [], 0.2)[0]:
                    part = os.read(terminal, 65536)
                    shown += part
                    if b"\x1b[6n" in part:
                        os.write(terminal, b"\x1b[1;1R")

        draining = threading.Thread(target=drain, daemon=True)
        draining.start()
        # Before the terminal is closed: the next file to be opened has its number, and would be drained.
        self.addCleanup(draining.join)
        self.addCleanup(over.set)
        until(name, lambda: self.space.lastword("agent", "show", name).returncode == 0)

        def unread():
            count = bytearray(4)
            fcntl.ioctl(other, termios.FIONREAD, count)
            return int.from_bytes(count, sys.byteorder)

        def reads():
            # What it reads at once counts as pasted: in it, Enter is a new line.
            until("the reader of what is typed", lambda: not unread())
            time.sleep(1)

        def types(text, enter=False):
            requests = len(self.space.model.requests())
            os.write(terminal, text.encode())
            reads()
            if not enter:
                return
            os.write(terminal, b"\r")
            # A prompt reaches the model, unless a busy program missed the text, or took Enter for a part of it.
            for attempt in range(1, 9):
                if not text or looked(lambda: len(self.space.model.requests()) > requests, 15):
                    return
                if attempt % 3 == 0:
                    os.write(terminal, text.encode())
                    reads()
                os.write(terminal, b"\r")
            self.fail(f"{text!r} is no prompt; {machine()}")

        return types

    def asks(self, reference, text="which port?"):
        sent = self.space.lastword("send", "bob", text, "--ref", reference)
        self.assertEqual(sent.returncode, 0, sent)
        return self.space.answer()["body"]

    def prompted(self, words):
        """Waits until exactly these words are a prompt of the model."""
        until(words, lambda: any(words in request["prompts"] for request in self.space.model.requests()))

    def test_an_idle_session_of_claude_wakes(self):
        temporary = self.space.dir / "tmp"
        temporary.mkdir()
        self.space.more = {"TMPDIR": str(temporary)}
        self.session("claude", CLAUDE)
        # The waiter of the session's start holds the connection that the broker counts as the agent's presence.
        until("the waiter", lambda: list(temporary.glob("lastword-*/*.wait")))
        self.assertEqual(self.asks("E-1"), "done: nothing to call")
        self.assertEqual(self.asks("E-2"), "done: nothing to call", "woken again")
        self.assertFalse(CHANNELS & self.offered())

    def kind_of_grant(self, reference):
        """Waits for the work under a REF; returns how its newest grant was given, and by whom."""
        tree = lambda: self.space.lastword("tree", reference, "--json")
        until(reference, lambda: tree().returncode == 0)
        grant = json.loads(tree().stdout)["grants"][-1]
        return grant["kind"], grant["giver"]

    def lives(self, program, path, *args, counted=870):
        """A session is woken and counted, stopped without its end, and its user's word counts."""
        state = closed_folder()
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        temporary = self.space.dir / "tmp"
        temporary.mkdir()
        self.space.more = {"XDG_STATE_HOME": state, "TMPDIR": str(temporary)}
        self.space.lastword("agent", "add", "carol")
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        types = self.session(program, path, *args)
        kept = lambda name: [*temporary.glob(f"*/{name}"), *pathlib.Path(state).glob(f"lastword/hooks/**/{name}")]
        states = lambda: [json.loads(file.read_text()) for file in kept("*.json") if file.name != "settings.json"]
        idle = lambda: until("its rest", lambda: not any(state["works"] for state in states()))
        waits = lambda: kept("*.wait")
        send = 'call: lastword.*send_agent_message {"target_agent_id": "carol", "ref": "%s", "message": "which port?"}'
        if program == "gemini":
            # While its hook waits for messages, what is typed is queued: its first prompt is typed before.
            until("the prompt", lambda: b"Type your message" in self.shown)
            types(send % "TYPED-1", enter=True)
            self.assertEqual(self.kind_of_grant("TYPED-1"), ("typed", "operator"))
            until("the waiter", waits)
        self.asks("E-0")
        self.asks("E-1", "call: lastword.*list_agents {}")
        work = self.space.json("tree", "E-1")["tree"][0]
        self.assertEqual((work["tokens"], work.get("estimated", False)), (2 * counted, False))
        # Each way to stop, with one of the programs whose servers are told.
        controls = {"codex": [["--workspace"]], "opencode": [["S-3"]]}
        for control in controls.get(program, [["--agent", "bob"], ["--workspace"], ["S-3"]]):
            name = control[-1].strip("-")
            self.space.lastword("send", "bob", f"wait: {name}\nsay: late", "--ref", "S-3" if name == "S-3" else f"S-{name}")
            until("the model's turn", lambda: self.space.model.waiting(name))
            stopped = self.space.lastword("stop", *control)
            self.assertEqual(stopped.returncode, 0, stopped)
            resumed = self.space.lastword("resume", *control, "--yes")
            self.assertEqual(resumed.returncode, 0, resumed)
            # Its model's request is never answered.
            self.assertIn("stopped", self.space.answer()["body"])
            if program == "gemini":
                # After an interrupt it takes no message any more.
                self.launcher.wait(PATIENCE)
                self.assertIn(b"was ended", self.shown)
                return
            idle()
            self.assertEqual(self.asks(f"R-{name}", "say: back"), "back")
            self.assertIsNone(self.launcher.poll())
        types(send % "TYPED-1", enter=True)
        self.assertEqual(self.kind_of_grant("TYPED-1"), ("typed", "operator"))
        idle()
        # A message that wakes the session is nobody's prompt.
        self.space.lastword("send", "bob", send % "WOKEN-1", "--ref", "WORK-1")
        self.assertEqual(self.kind_of_grant("WOKEN-1"), ("message", "operator"))
        idle()
        if program == "opencode":
            return
        types(send % "TYPED-2", enter=True)
        self.assertEqual(self.kind_of_grant("TYPED-2"), ("typed", "operator"))

    def test_a_session_of_claude_lives(self):
        self.lives("claude", CLAUDE)

    def test_a_session_of_codex_lives(self):
        self.lives("codex", CODEX)

    def test_a_session_of_opencode_lives(self):
        self.lives("opencode", OPENCODE)

    def test_a_session_of_gemini_lives(self):
        self.lives("gemini", MODULES / ".bin/gemini", "--wake", counted=900)

    def test_an_idle_session_of_codex_wakes(self):
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        types = self.session("codex", CODEX)
        self.assertIn("bob", self.asks("E-1", "call: lastword.*list_agents {}"), "it has Lastword's tools")
        self.asks("E-0", 'call: exec_command {"cmd": "touch made"}')
        self.assertFalse((self.space.work / "made").exists(), "what writes needs its user's approval")
        types("half a li")
        self.assertIn("done", self.asks("E-2"), "woken again")
        types("ne", enter=True)
        self.prompted("half a line")
        offered = self.offered()
        self.assertFalse([name for name in offered if "agent" in name and "lastword" not in name], offered)
        self.assertFalse([name for name in offered if "thread" in name], offered)

    def test_what_codex_queue_puts_into_a_session_is_nobodys_word(self):
        temporary = self.space.dir / "tmp"
        temporary.mkdir()
        self.space.more = {"TMPDIR": str(temporary)}
        self.session("codex", CODEX)
        self.asks("E-1")
        thread = next((self.space.home / ".codex").rglob("rollout-*")).stem[-36:]
        socket = next(temporary.rglob("codex.sock"))
        line = [CODEX, "queue", "--thread", thread, "--message", "say: it is queued", "--remote", f"unix://{socket}"]
        queued = subprocess.run(line, env=self.space.environment(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(queued.returncode, 0, queued)
        incident = until("its incident", lambda: self.space.json("incidents")["items"])[0]
        self.assertEqual(incident["code"], "turn_closed", incident)
        grants = self.space.json("tree", "E-1")["grants"]
        self.assertEqual([grant["kind"] for grant in grants], ["message"], "no grant in the name of its user")

    def test_a_session_of_codex_is_resumed(self):
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        self.session("codex", CODEX)
        self.assertIn("done", self.asks("E-1"))
        self.leave()
        self.session("codex", CODEX, "resume", "--last")
        self.asks("E-2", 'call: exec_command {"cmd": "touch made"}')
        self.assertFalse((self.space.work / "made").exists(), "what writes needs its user's approval")

    def continues(self, program, path, *args):
        """Two agents sit in one folder, one after the other; then the first one continues."""
        def says(name, text, *more):
            types = self.session(program, path, *args, *more, name=name)
            if program == "gemini":
                until("the prompt", lambda: b"Type your message" in self.shown)
                types(text, enter=True)
                self.prompted(text)
            else:
                self.space.lastword("send", name, text, "--ref", text.replace(" ", "-"))
                self.assertIn("done", self.space.answer()["body"])
            kept = self.space.data / "last-sessions" / program / f"{name}.json"
            until("the session's id", kept.exists)

        says("bob", "bob was here")
        self.leave()
        says("amy", "amy was here")
        self.leave()
        says("bob", "bob goes on", "--continue")
        last = [request["prompts"] for request in self.space.model.requests() if request["prompts"]][-1]
        self.assertIn("bob was here", "\n".join(last))
        self.assertNotIn("amy was here", "\n".join(last))

    def test_an_agent_continues_its_own_session_of_claude(self):
        self.continues("claude", CLAUDE)

    def test_an_agent_continues_its_own_session_of_codex(self):
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        self.continues("codex", CODEX)

    def test_an_agent_continues_its_own_session_of_opencode(self):
        self.continues("opencode", OPENCODE)

    def test_an_agent_continues_its_own_session_of_gemini(self):
        state = closed_folder()
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        self.space.more = {"XDG_STATE_HOME": state}
        self.continues("gemini", MODULES / ".bin/gemini")

    def left(self):
        """The processes of the test's agents that run, by their environment."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                if f"HOME={self.space.home}".encode() in environment and b"LASTWORD_AGENT=bob" in environment:
                    found.append((process / "cmdline").read_bytes()[:200])
            except OSError:
                pass
        return found

    def test_a_killed_launcher_takes_its_program_along(self):
        state = closed_folder()
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        self.space.more = {"XDG_STATE_HOME": state}
        programs = {"claude": CLAUDE, "codex": CODEX, "opencode": OPENCODE, "gemini": MODULES / ".bin/gemini"}
        for program, path in programs.items():
            with self.subTest(program):
                self.session(program, path)
                until("its interface", lambda: b"\x1b[" in self.shown and self.left())
                self.launcher.kill()
                self.launcher.wait()
                until("the end of what it started", lambda: not self.left())

    def test_an_idle_session_of_opencode_wakes(self):
        types = self.session("opencode", OPENCODE)
        self.space.lastword("send", "bob", TOUCH.replace("^Bash$", "^bash$"), "--ref", "E-0")
        until("the question", lambda: b"Permission" in self.shown)
        made = self.space.work / "made"
        self.assertFalse(made.exists(), "its user is asked, although the project's settings allow it")
        types("", enter=True)
        self.assertIn("done", self.space.answer()["body"])
        self.assertTrue(made.exists(), "allowed once")
        self.assertIn("bob", self.asks("E-1", "call: lastword.*list_agents {}"), "it has Lastword's tools")
        types("half a li")
        self.assertIn("done", self.asks("E-2"), "woken again")
        types("ne", enter=True)
        self.prompted("half a line")
        self.assertNotIn("task", self.offered())

    def sits(self, program, path, *args):
        """Starts a session in a home and a project that allow the shell; returns what types in it."""
        self.space.allow()
        state = closed_folder()
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        self.space.more = {"XDG_STATE_HOME": state}
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        types = self.session(program, path, *args)
        if program == "gemini":
            until("the prompt", lambda: b"Type your message" in self.shown)
            types("hello", enter=True)
            until("the waiter", lambda: list(pathlib.Path(state).glob("lastword/hooks/*/*.wait")))
        return types

    def waits_for_user(self):
        return self.space.json("agent", "show", "bob").get("waits_for_user", False)

    def decides(self, types, key):
        """Presses a key until the dialog has ended."""
        try:
            until("the end of the dialog", lambda: types(key) or looked(lambda: not self.waits_for_user()))
        except AssertionError as error:
            raise AssertionError(f"{error}; the terminal showed {bytes(self.shown[-2000:])!r}") from error

    def asks_its_user(self, program, path, call, *args, made="made"):
        """What a message asks for isn't made unasked, whatever its user and the project allow; the dialog is seen."""
        types = self.sits(program, path, *args)
        made = self.space.work / made
        self.space.lastword("send", "bob", call, "--ref", "E-1")
        until("the dialog at the broker", self.waits_for_user)
        self.assertIn("waits for its user", self.space.lastword("ls").stdout)
        if program == "gemini":
            # Its hook is called before its dialog is shown.
            until("the dialog", lambda: b"Allow execution" in self.shown)
        self.assertFalse(made.exists(), "its user is asked")
        self.decides(types, "\r")
        self.assertIn("done", self.space.answer()["body"])
        until("the allowed file", made.exists)
        self.assertFalse(self.waits_for_user())

    def refuses(self, program, path, call, *args, key="\x1b", reason="refused the call"):
        """A call that its user refuses in the dialog ends the turn of who asked, with that reason."""
        types = self.sits(program, path, *args)
        self.space.lastword("send", "bob", call, "--ref", "E-1")
        until("the dialog at the broker", self.waits_for_user)
        until("the dialog", lambda: re.search(DIALOG, self.shown))
        self.decides(types, key)
        answer = self.space.answer()
        self.assertEqual(answer["status"], "failed", answer)
        self.assertIn(reason, answer["reason"])
        self.assertFalse((self.space.work / "made").exists())
        self.assertFalse(self.waits_for_user())

    def test_a_refused_dialog_of_claude_ends_the_turn(self):
        self.refuses("claude", CLAUDE, TOUCH)

    def test_a_refused_dialog_of_codex_ends_the_turn(self):
        self.refuses("codex", CODEX, ESCALATED, reason="interrupted the turn")

    def test_a_refused_dialog_of_opencode_ends_the_turn(self):
        self.refuses("opencode", OPENCODE, TOUCH.replace("^Bash$", "^bash$"))

    def test_a_refused_dialog_of_gemini_ends_the_turn(self):
        self.refuses("gemini", MODULES / ".bin/gemini", TOUCH.replace("^Bash$", "run_shell_command"), "--wake", key="3")

    def test_a_turn_of_claude_ends_with_the_sub_agent_that_it_left_behind(self):
        types = self.sits("claude", CLAUDE)
        agent = {"description": "x", "subagent_type": "general-purpose", "run_in_background": True, "prompt": TOUCH}
        self.space.lastword("send", "bob", f"call: ^Agent$ {json.dumps(agent)}", "--ref", "E-1")
        until("the dialog of the sub-agent", self.waits_for_user)
        until("the dialog", lambda: re.search(DIALOG, self.shown))
        self.assertIn("no answer yet", self.space.lastword("inbox").stdout)
        self.decides(types, "\r")
        answer = self.space.answer()
        self.assertEqual(answer["status"], "completed", answer)
        self.assertTrue((self.space.work / "made").exists(), "what it asked for was made within the turn")
        self.assertFalse(self.space.json("incidents")["items"])
        self.assertEqual(self.asks("E-2", "say: still here"), "still here")

    def waits_in_lastword(self, program, path, call, made="made"):
        """With --held, any human of the team decides on what a message asks for, and the session's user on the rest."""
        types = self.sits(program, path, "--held")
        made = self.space.work / made
        self.space.lastword("send", "bob", call, "--ref", "E-1")
        asked = self.space.pending()
        self.assertIn("touch made", json.dumps(asked["arguments"]))
        self.assertFalse(made.exists(), "held")
        self.space.lastword("reject", asked["id"], "--yes", "--comment", "not before noon")
        self.assertEqual(self.space.answer()["status"], "completed", "the model goes on")
        self.assertFalse(made.exists(), "rejected")
        self.assertIn("not before noon", self.space.model.heard())
        self.space.lastword("send", "bob", call, "--ref", "E-2")
        asked = self.space.pending()
        approved = self.space.lastword("approve", asked["id"], "--yes", "--digest", asked["digest"])
        self.assertEqual(approved.returncode, 0, approved)
        self.assertIn("done", self.space.answer()["body"])
        until("the approved file", made.exists)
        made.unlink()
        self.shown.clear()
        self.space.lastword("send", "bob", call, "--ref", "E-3")
        asked = self.space.pending()
        until("a dialog", lambda: re.search(DIALOG, self.shown))
        types("", enter=True)
        self.assertIn("done", self.space.answer()["body"], "its user answered, and nobody else has to")
        until("the file", made.exists)
        given_up = next(call for call in self.space.json("approvals", "--all")["items"] if call["id"] == asked["id"])
        self.assertEqual((given_up["state"], given_up["by"]), ("ignored", "bob"))
        made.unlink()
        self.shown.clear()
        types(call, enter=True)
        until("a dialog", lambda: re.search(DIALOG, self.shown))
        self.assertFalse(made.exists(), "its user is asked")
        self.assertFalse(self.space.json("approvals")["items"], "what its user asked for is its user's to decide")

    def claims(self, program, path, call, *args):
        """A session leaves a file alone that another holds, tells its model who does, and claims it once it is free."""
        subprocess.run(["git", "init", "-q", self.space.work], check=True)
        types = self.sits(program, path, *args)
        made = self.space.work / "made"
        held = self.space.lastword("claim", str(made))
        self.assertEqual(held.returncode, 0, held)
        self.space.lastword("send", "bob", call, "--ref", "E-1")
        self.space.answer()
        self.assertFalse(made.exists(), "held by another")
        self.assertIn("made is held by", self.space.model.heard())
        self.space.lastword("release", str(made))
        self.space.lastword("send", "bob", call, "--ref", "E-2")
        until("the dialog at the broker", self.waits_for_user)
        until("the dialog", lambda: re.search(DIALOG, self.shown))
        self.assertEqual([claim["agent"] for claim in self.space.json("claims")["items"]], ["bob"])
        self.decides(types, "\r")
        self.assertIn("done", self.space.answer()["body"])
        until("the file", made.exists)
        until("the end of the claim", lambda: not self.space.json("claims")["items"])

    def test_a_session_of_claude_claims_what_it_edits(self):
        self.claims("claude", CLAUDE, TOUCH)

    def test_a_session_of_codex_claims_what_it_edits(self):
        self.claims("codex", CODEX, ESCALATED)

    def test_a_session_of_opencode_claims_what_it_edits(self):
        self.claims("opencode", OPENCODE, TOUCH.replace("^Bash$", "^bash$"))

    def test_a_session_of_gemini_claims_what_it_edits(self):
        self.claims("gemini", MODULES / ".bin/gemini", TOUCH.replace("^Bash$", "run_shell_command"), "--wake")

    def test_a_session_runs_unheld_what_its_settings_allow(self):
        programs = {"claude": (CLAUDE, TOUCH), "codex": (CODEX, ESCALATED)}
        for program, (path, call) in programs.items():
            with self.subTest(program):
                self.doCleanups()
                self.setUp()
                self.sits(program, path, "--unheld")
                self.assertIn("done", self.asks("E-1", call))
                until("the file", (self.space.work / "made").exists)

    def test_a_session_of_claude_asks_its_user(self):
        self.asks_its_user("claude", CLAUDE, TOUCH)

    def test_a_session_of_claude_waits_in_lastword(self):
        self.waits_in_lastword("claude", CLAUDE, TOUCH)

    def test_a_session_of_codex_asks_its_user(self):
        self.asks_its_user("codex", CODEX, ESCALATED)

    def test_a_session_of_codex_waits_in_lastword(self):
        self.waits_in_lastword("codex", CODEX, ESCALATED)

    def test_a_session_of_codex_asks_its_user_for_what_servers_of_mcp_do(self):
        self.space.allow_server()
        self.asks_its_user("codex", CODEX, TOUCH_BY_SERVER, made="touch made")

    def test_a_servers_call_in_a_session_of_codex_waits_in_lastword(self):
        self.space.allow_server()
        self.waits_in_lastword("codex", CODEX, TOUCH_BY_SERVER, made="touch made")

    def test_what_is_always_allowed_in_a_session_of_codex_ends_with_it(self):
        self.space.allow_server(codex="")
        types = self.sits("codex", CODEX)
        home = self.space.home / ".codex"
        for reference, call, shown, key in [("E-1", TOUCH_BY_SERVER, b"Always", "3"), ("E-2", ESCALATED, b"ask again", "2")]:
            self.shown.clear()
            self.space.lastword("send", "bob", call, "--ref", reference)
            until("the dialog at the broker", self.waits_for_user)
            until("the dialog", lambda: shown in self.shown)
            types(key)
            self.assertEqual(self.space.answer()["status"], "completed")
        self.assertEqual((home / "rules/default.rules").read_text(), CODEX_ALLOWS)
        self.assertNotIn("approval_mode", (home / "config.toml").read_text())
        self.assertFalse((home / "config.toml").is_symlink())

    def test_a_session_of_codex_starts_in_a_home_and_a_project_that_know_it(self):
        # The socket of the app-server that plain `codex` starts.
        (self.space.home / ".codex/app-server-control").mkdir()
        with socket.socket(socket.AF_UNIX) as control:
            control.bind(str(self.space.home / ".codex/app-server-control/app-server-control.sock"))
        # A hook that allows before anybody is asked, and that Codex would have its user review.
        allow = json.dumps({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}})
        hook = {"hooks": [{"type": "command", "command": f"echo '{allow}'"}]}
        (self.space.home / ".codex/hooks.json").write_text(json.dumps({"hooks": {"PermissionRequest": [hook]}}))
        token = self.space.lastword("agent", "add", "kilo").stdout.strip()
        subprocess.run([LASTWORD, "init", "--from-env", "--codex"], cwd=self.space.work, check=True,
                       env=dict(self.space.environment(), LASTWORD_TOKEN=token), stdout=subprocess.DEVNULL)
        self.sits("codex", CODEX)
        self.assertIn("bob", self.asks("E-1", "call: lastword.*list_agents {}"), "it has Lastword's tools")
        self.assertNotIn(b"sandbox after you trust", self.shown, "no hook to review")
        self.space.lastword("send", "bob", ESCALATED, "--ref", "E-2")
        until("the dialog at the broker", self.waits_for_user)

    def test_a_session_of_opencode_asks_its_user(self):
        self.asks_its_user("opencode", OPENCODE, TOUCH.replace("^Bash$", "^bash$"))

    def test_a_session_of_opencode_waits_in_lastword(self):
        self.waits_in_lastword("opencode", OPENCODE, TOUCH.replace("^Bash$", "^bash$"))

    def test_a_session_of_gemini_asks_its_user(self):
        self.asks_its_user("gemini", MODULES / ".bin/gemini", TOUCH.replace("^Bash$", "run_shell_command"), "--wake")

    def test_a_session_of_gemini_asks_its_user_for_what_trusted_servers_do(self):
        self.space.allow_server()
        self.asks_its_user("gemini", MODULES / ".bin/gemini", TOUCH_BY_SERVER, "--wake", made="touch made")

    def test_an_idle_session_of_gemini_wakes(self):
        state = closed_folder()
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        self.space.more = {"XDG_STATE_HOME": state}
        types = self.session("gemini", MODULES / ".bin/gemini", "--wake")
        folder = pathlib.Path(state, "lastword/hooks")
        until("the prompt", lambda: b"Type your message" in self.shown)
        types("hello", enter=True)
        until("the waiter", lambda: list(folder.glob("*/*.wait")))
        self.assertEqual(self.asks("E-1"), "done: nothing to call")
        types("half a li")
        self.assertEqual(self.asks("E-2"), "done: nothing to call", "woken again")
        self.assertNotIn("invoke_agent", self.offered())
        self.assertIn("mcp_lastword_list_agents", self.offered())

    def test_init_turns_channels_off(self):
        (self.space.dir / "bin").mkdir()
        token = self.space.lastword("agent", "add", "bob").stdout.strip()
        flags = ["--claude", "--codex", "--opencode", "--gemini"]
        environment = dict(self.space.environment(), LASTWORD_TOKEN=token)
        subprocess.run([LASTWORD, "init", "--from-env", *flags], env=environment, cwd=self.space.work, check=True,
                       stdout=subprocess.DEVNULL)
        with open(self.space.home / ".codex/config.toml", "a") as config:
            config.write(f'[projects."{self.space.work}"]\ntrust_level = "trusted"\n')
        for command in ([CLAUDE, "-p", "hi"], [CODEX, "exec", "--skip-git-repo-check", "hi"], [OPENCODE, "run", "hi"],
                        [MODULES / ".bin/gemini", "-p", "hi"]):
            subprocess.run(command, env=environment, cwd=self.space.work, stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=PATIENCE)
        offered = self.offered()
        self.assertIn("lastword_list_agents", offered, "opencode took part")
        self.assertFalse((CHANNELS | {"task", "invoke_agent"}) & offered, offered)
        self.assertFalse(list(filter(CODEX_CHANNELS.search, offered)), offered)


def load_tests(_loader, suites, _pattern):
    """The part of the tests that SHARD names, such as 0/3: they wait much and compute little."""
    part, parts = map(int, os.environ.get("SHARD", "0/1").split("/"))
    return unittest.TestSuite([test for suite in suites for test in suite][part::parts])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")

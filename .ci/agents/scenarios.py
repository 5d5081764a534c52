"""What real agent programs do under `lastword run`: each scenario with each program, as seen at the broker.

Prints a table in Markdown, or JSON with `--json`. A program that can't do something says `no: REASON`, and the table
below says that it is expected to. Anything else that differs from it is a failure. Arguments: names of programs, and
`--only SCENARIO`."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from test_programs import CLAUDE, CODEX, LASTWORD, MODULES, OPENCODE, Workspace, until

CORE = {"next_message", "finish_turn", "send_agent_message", "escalate_to_user", "check_request", "list_agents"}
# codex-acp and gemini ask before Lastword's tools too, and report them only as `other`.
OTHER = '[[approval]]\ntool = "other"\ndecision = "allow"\n'


@dataclass
class Program:
    """A command line, and what it is expected to be unable to do."""

    title: str
    package: str
    command: list
    init: tuple = ()
    flags: tuple = ("--input", "prompt")
    shell: str = 'call: ^[Bb]ash$ {"command": "touch FILE", "description": "x"}'
    policy: str = ""
    # Whether a call is held, and whether a human's edit changes it: ACP's answer is only yes or no.
    held: bool = True
    edited: bool = False
    # Model requests whose tokens are recorded in a turn of two, besides those for titles; None: estimated from the text.
    counted: int | None = 2
    # Weighted tokens of a model request as the program reports it: the model's cache reads count a tenth, if they are told.
    weight: int = 870
    # Whether the figures are marked as estimated.
    estimated: bool = False
    # Whether a call that its user or the project allows is held, too.
    overrides: bool = False
    # A budget that its first turn uses up.
    budget: int = 500


# Tools that start turns later, or reach other sessions.
STRAYS = re.compile("goal|CronCreate|ScheduleWakeup|Monitor|SendMessage|ListAgents|spawn_agent|followup_task|wait_agent")
ACP = ("--driver", "acp", "--allow", "mcp__lastword__*")
CODEX_SHELL = 'call: exec_command {"cmd": "touch FILE"}'
GEMINI_SHELL = 'call: run_shell_command {"command": "touch FILE", "description": "x"}'
PROGRAMS = {
    "claude": Program(
        "`claude -p`", "@anthropic-ai/claude-code",
        [CLAUDE, "-p", "--permission-prompt-tool", "mcp__lastword__approve_tool_use"],
        ("--claude", "--tools", "core,approve_tool_use"), edited=True),
    "claude-agent-acp": Program(
        "`claude-agent-acp`", "@agentclientprotocol/claude-agent-acp", [MODULES / ".bin/claude-agent-acp"], flags=ACP,
        estimated=True, overrides=True),
    "codex": Program(
        "`codex exec`", "@openai/codex", [CODEX, "exec", "--skip-git-repo-check", "-"], ("--codex",),
        shell=CODEX_SHELL, held=False),
    "codex-acp": Program(
        "`codex-acp`", "@zed-industries/codex-acp",
        # Its sandbox needs bubblewrap, which not every machine has.
        ["node", MODULES / "@zed-industries/codex-acp/bin/codex-acp.js", "-c", 'sandbox_mode="danger-full-access"'],
        flags=ACP, shell=CODEX_SHELL, policy=OTHER, counted=None, estimated=True, overrides=True, budget=20),
    "opencode": Program("`opencode run`", "opencode-ai", [OPENCODE, "run"], ("--opencode",), held=False),
    # It reports its last model request only; the runner counts another for the round of tool calls.
    "opencode-acp": Program("`opencode acp`", "opencode-ai", [OPENCODE, "acp"], flags=ACP, estimated=True, overrides=True),
    "gemini": Program(
        "`gemini`", "@google/gemini-cli", [MODULES / ".bin/gemini"], ("--gemini",),
        flags=("--input", "prompt", "--env", "GEMINI_CLI_TRUST_WORKSPACE=true"), shell=GEMINI_SHELL, held=False),
    "gemini-acp": Program(
        "`gemini --acp`", "@google/gemini-cli", [MODULES / ".bin/gemini", "--acp"], flags=ACP, shell=GEMINI_SHELL,
        policy=OTHER, overrides=True, weight=1050),
}


def check(true, what):
    if not true:
        raise AssertionError(what)


class Space(Workspace):
    """A workspace in which the program is set up as its page says."""

    def __init__(self, program, config=""):
        super().__init__(config.replace("BUDGET", str(program.budget)) + program.policy)
        self.program, self.orphans = program, set()
        try:
            self.configure()
            # The user's own settings allow nothing: who is asked is up to the program and Lastword.
            (self.home / ".claude/settings.json").write_text("{}")
            with open(self.home / ".codex/config.toml", "a") as file:
                file.write(f'[projects."{self.work}"]\ntrust_level = "trusted"\n')
            if program.init:
                subprocess.run([LASTWORD, "init", "--from-env", *program.init], env=self.environment(), cwd=self.work,
                               check=True, capture_output=True, text=True)
        except BaseException:
            self.close()
            raise

    def start(self, name="bob"):
        return self.run(name, self.program.command, *self.program.flags, "--grace", "1s")

    def send(self, ref, body, to="bob"):
        sent = self.lastword("send", to, body, "--ref", ref)
        check(sent.returncode == 0, sent.stderr)

    def messages(self, ref, *filters):
        return self.json("audit", "--ref", ref, "--all", *filters)["items"]

    def answers(self, ref):
        return self.messages(ref, "--to", "operator", "--type", "response")

    def answer(self, ref):
        """The one answer to the human's request, once its conversation has no open task."""
        answer = until(f"the answer of {ref}", lambda: self.answers(ref))[0]
        until("its end", lambda: self.json("tree", ref)["counters"]["open_tasks"] == 0)
        answers = self.answers(ref)
        check(len(answers) == 1, f"{len(answers)} answers: {answers}")
        return answer

    def said(self, ref, words):
        answer = self.answer(ref)
        # codex-acp begins with a warning that it doesn't know the model.
        check(answer["body"].strip().endswith(words) and answer["status"] == "completed", f"{words!r} expected: {answer}")

    def groups(self, name="bob"):
        """The process groups of the programs that the runner started; its guard lives as long as the runner."""
        pid = self.runners[name].pid
        children = set()
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                children.update(child for child in map(int, listed.read().split()) if not is_guard(child))
        self.orphans |= children
        return children

    def close(self):
        for name, runner in self.runners.items():
            if runner.poll() is None:
                self.groups(name)
        super().close()
        for group in self.orphans:
            kill(group)


def is_guard(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as read:
            return b"end-program" in read.read().split(b"\0")
    except FileNotFoundError:
        return False


def kill(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def joins(space):
    """The model is offered Lastword's six core tools, and one of them works."""
    space.start()
    space.send("E-1", "call: lastword.*list_agents {}")
    answer = space.answer("E-1")
    offered = {name for request in space.model.requests() for name in request["tools"] if "lastword" in name}
    core = {name for name in CORE for tool in offered if tool.endswith(name)}
    check(core == CORE and len(offered) == len(CORE), f"offered: {sorted(offered)}")
    check("bob" in answer["body"], answer)
    return "yes"


def prose(space):
    space.start()
    space.send("E-1", "say: Staging uses port 8123.")
    space.said("E-1", "Staging uses port 8123.")
    return "yes"


def runaway(space):
    """Two agents answer each message by a request to the other; the guards end it."""
    began = time.monotonic()
    space.start("ann")
    space.start("bob")
    space.send("E-1", "pong: ann bob")
    answer = space.answer("E-1")
    bound = space.json("bound")["messages"]
    between = [message for message in space.messages("E-1")
               if {message["from"], message["to"]} == {"ann", "bob"} and message["type"] in ("request", "response")]
    grant = space.json("tree", "E-1")["grants"][0]
    used = next(limit["current"] for limit in grant["limits"] if limit["name"] == "grant_messages_max")
    refused = sorted(set(re.findall(r'"code":"(depth_cap|passive_reply|[a-z]+_rate)"',
                                    space.lastword("--json", "tail", "-n", "1000").stdout)))
    check(between and refused, f"{len(between)} messages, refused: {refused}")
    check(used <= bound and not grant["open"], f"{used} messages, bound {bound}: {grant}")
    return f"{len(between)} messages ({used} of {bound}), {', '.join(refused)}, {answer['status']}, " \
        f"{time.monotonic() - began:.0f} s"


def hold(space):
    """One call each: approved, rejected, approved with other arguments, and not decided."""
    program = space.program
    space.start()

    def asked(name):
        """Sends the call and returns it once it is held, or None if the program answers without asking."""
        space.send(name.upper(), program.shell.replace("FILE", name))
        until("a held call or the answer", lambda: space.json("approvals")["items"] or space.answers(name.upper()))
        return next(iter(space.json("approvals")["items"]), None)

    def made(name):
        return (space.work / name).exists()

    call = asked("approve")
    if call is None:
        check(not program.held, f"it wasn't held: {space.answers('APPROVE')}")
        check(not space.json("approvals", "--all")["items"], "a call was held")
        body = space.answer("APPROVE")["body"]
        return "no: " + ("made unasked" if made("approve") else "no shell offered" if "no tool matches" in body
                         else "not asked, and its sandbox refused it")
    check(program.held, "it was held")
    approved = space.lastword("approve", call["id"], "--yes", "--digest", call["digest"])
    check(approved.returncode == 0, approved.stderr)
    answer = space.answer("APPROVE")
    until(f"the approved file, after {answer['body']!r}", lambda: made("approve"))
    call = asked("reject")
    space.lastword("reject", call["id"], "--yes", "--comment", "not now")
    space.answer("REJECT")
    check(not made("reject"), "a rejected call was made")
    call = asked("edit")
    instead = json.dumps(call["arguments"]).replace("touch edit", "touch other")
    approved = space.lastword("approve", call["id"], "--yes", "--digest", call["digest"], "--edit", instead)
    check(approved.returncode == 0, approved.stderr)
    space.answer("EDIT")
    check(not made("edit"), "a call was made without the edit")
    check(made("other") == program.edited, f"the edited call was made: {made('other')}")
    if not program.edited:
        prompts = [prompt for request in space.model.requests() for prompt in request["prompts"]]
        check(any("touch other" in prompt for prompt in prompts), "the agent wasn't told of the edited call")
    space.send("EXPIRE", program.shell.replace("FILE", "expire"))
    space.answer("EXPIRE")
    check(not made("expire"), "an undecided call was made")
    states = [call["state"] for call in space.json("approvals", "--all")["items"]]
    check(sorted(states) == sorted(["used", "rejected", "used" if program.edited else "approved", "expired"]), states)
    return "yes" if program.edited else "yes; no edit: denied, and the agent told of the edited call"


def escalates(space):
    """The human's answer is the program's next prompt."""
    space.start()
    space.send("E-1", 'call: escalate_to_user {"message": "eu or us?"}')
    question = until("the question", lambda: space.json("escalations")["items"])[0]
    answered = space.lastword("answer", question["id"], "say: eu, then", "--yes")
    check(answered.returncode == 0, answered.stderr)
    space.said("E-1", "eu, then")
    return "yes"


def working(space, body):
    """Starts the program, and returns its events once its model holds back its answer."""
    events = space.start()
    space.send("E-1", f"wait: gate\nsay: {body}")
    until("the model", lambda: space.model.waiting("gate"))
    return events


def taken(events):
    return [event for event in events if event["event"] == "taken"]


def broker_killed(space):
    """The program answers while the broker is down."""
    events = working(space, "still here")
    space.server.kill()
    space.server.wait()
    replies = space.model.replies()
    space.model.release("gate")
    until("the model's reply", lambda: space.model.replies() > replies)
    space.serve()
    space.said("E-1", "still here")
    check(len(taken(events)) == 1, f"it ran {len(taken(events))} times")
    return "yes"


def runner_killed(space):
    working(space, "second runner")
    space.groups()
    space.runners["bob"].kill()
    space.runners["bob"].wait()
    events = space.start()
    until("the second run", lambda: space.model.waiting("gate") > 1)
    space.model.release("gate")
    space.said("E-1", "second runner")
    check(len(taken(events)) == 1, f"it ran {len(taken(events))} more times")
    return "yes"


def program_killed(space):
    """The request ends, and the next one is answered."""
    working(space, "first")
    for group in space.groups():
        kill(group)
    until("its end", lambda: space.answers("E-1") or space.model.waiting("gate") > 1)
    space.model.release("gate")
    answer = space.answer("E-1")
    space.send("E-2", "say: next")
    space.said("E-2", "next")
    check(answer["status"] == "failed" or answer["body"].endswith("first"), answer)
    return "failed, next request answered" if answer["status"] == "failed" else "answered on a retry"


def six(space):
    """Six agents work at the same time: the model answers none before all have asked it."""
    names = [f"bob{number}" for number in range(6)]
    for name in names:
        space.start(name)
    for name in names:
        space.send(name.upper(), f"wait: all\nsay: I am {name}", name)
    until("all six at once", lambda: space.model.waiting("all") >= 6, 240)
    space.model.release("all")
    for name in names:
        space.said(name.upper(), f"I am {name}")
    return "6 of 6"


def strays(space):
    """No tool that starts turns later, or in another session, is offered."""
    space.start()
    space.send("E-1", f"call: {STRAYS.pattern} {{}}")
    check("no tool matches" in space.answer("E-1")["body"], space.answers("E-1"))
    offered = {name for request in space.model.requests() for name in request["tools"] if "lastword" not in name}
    check(not list(filter(STRAYS.search, offered)), f"offered: {sorted(offered)}")
    return "none offered"


def overrides(space, allow):
    """A call that the user or the project allows is held all the same, or the program isn't started."""
    allow()
    try:
        space.start()
    except AssertionError as error:
        check("rules lets Codex run commands unasked" in str(error), error)
        return "refused at the start, by name"
    made = space.work / "made"
    space.send("E-1", space.program.shell.replace("FILE", "made"))
    until("a held call or the answer", lambda: space.json("approvals")["items"] or space.answers("E-1"))
    held = next(iter(space.json("approvals")["items"]), None)
    check(bool(held) == space.program.overrides, f"held: {held}, made: {made.exists()}")
    if held is None:
        body = space.answer("E-1")["body"]
        return "no: " + ("made unasked" if made.exists() else "no shell offered" if "no tool matches" in body
                         else "not asked, and its sandbox refused it")
    space.lastword("reject", held["id"], "--yes")
    space.answer("E-1")
    check(not made.exists(), "a rejected call was made")
    return "yes"


def overrides_user(space):
    return overrides(space, space.allow_by_user)


def overrides_project(space):
    return overrides(space, lambda: space.allow_by_project(rules=True))


def stops(space):
    """The model's request is never answered, the program's processes end, and the next request is answered."""
    working(space, "late")
    groups = space.groups()
    stopped = space.lastword("stop", "E-1")
    check(stopped.returncode == 0, stopped.stderr)
    check("stopped" in space.answer("E-1")["body"], space.answers("E-1"))
    if space.program.flags[:2] != ACP[:2]:
        until("the end of its processes", lambda: not any(os.path.exists(f"/proc/{group}/exe") for group in groups))
    space.send("E-2", "say: next")
    space.said("E-2", "next")
    check(space.model.waiting("gate") == 1, "the stopped prompt was repeated")
    return "yes"


def resumes(space):
    """The budget of the work is used up in an agent's first turn or behind it; once a human gives more it ends well."""
    space.start("ann")
    space.start("bob")
    space.send("E-1", 'call: lastword.*send_agent_message {"target_agent_id": "ann", "message": "say: at once"}')
    incident = until("the hold", lambda: space.json("incidents")["items"])[0]
    check(incident["code"] == "budget" and not space.answers("E-1"), f"{incident}, {space.answers('E-1')}")
    given = space.lastword("grant", "E-1", "--tokens", "1000000", "--yes")
    check(given.returncode == 0, given.stderr)
    answer = space.answer("E-1")
    check(answer["status"] == "completed", answer)
    return "yes"


def tokens(space):
    """Recorded tokens, for each that the model counted."""
    space.start()
    space.send("E-1", "call: lastword.*list_agents {}")
    space.answer("E-1")
    tree = space.json("tree", "E-1")["tree"][0]
    recorded, replies, counted = tree["tokens"], space.model.replies(), space.program.counted
    ratio = recorded / (replies * space.program.weight)
    estimated = bool(tree.get("estimated"))
    check(estimated == space.program.estimated, f"estimated: {estimated}")
    if counted is None:
        return f"{ratio:.2f} (estimated)"
    check(recorded == counted * space.program.weight, f"{recorded} recorded of {replies} replies")
    return f"{ratio:.2f} ({counted} of {replies}{', estimated' if estimated else ''})"


SCENARIOS = {
    "joins": (joins, ""),
    "prose": (prose, ""),
    "runaway": (runaway, ""),
    "hold": (hold, "[limits]\napproval_ms = 4000\n"),
    "escalates": (escalates, ""),
    "broker killed": (broker_killed, ""),
    "runner killed": (runner_killed, ""),
    "program killed": (program_killed, ""),
    "six at once": (six, ""),
    "goals": (strays, ""),
    "user's allow": (overrides_user, "[limits]\napproval_ms = 30000\n"),
    "project's allow": (overrides_project, "[limits]\napproval_ms = 30000\n"),
    "stop": (stops, ""),
    "budget resumes": (resumes, "[limits]\ngrant_tokens_max = BUDGET\n"),
    "counted": (tokens, ""),
}


def play(program, name):
    """Plays one scenario; returns whether it passed, with its result and seconds."""
    scenario, config = SCENARIOS[name]
    began, space = time.monotonic(), None
    try:
        space = Space(program, config)
        passed, result = True, scenario(space)
    except Exception as error:
        passed, result = False, f"FAILED: {type(error).__name__}: {error}"
    finally:
        if space:
            space.close()
    seconds = time.monotonic() - began
    print(f"{program.title} {name}: {result} [{seconds:.1f} s]", file=sys.stderr, flush=True)
    return {"passed": passed, "result": result, "seconds": round(seconds, 1)}


def row(name, scenarios):
    program = PROGRAMS[name]
    version = json.loads((MODULES / program.package / "package.json").read_text())["version"]
    return {"program": name, "version": version, "scenarios": {each: play(program, each) for each in scenarios}}


def markdown(rows, scenarios):
    yield f"| program | version | {' | '.join(scenarios)} |"
    yield "|---|---|" + "---|" * len(scenarios)
    for each in rows:
        cells = [found["result"].replace("\n", " ").replace("|", "\\|")[:200] for found in each["scenarios"].values()]
        yield f"| {PROGRAMS[each['program']].title} | {each['version']} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="*", help=", ".join(PROGRAMS))
    parser.add_argument("--only", action="append", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    if unknown := set(args.program) - set(PROGRAMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    scenarios = args.only or list(SCENARIOS)
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda name: row(name, scenarios), args.program or PROGRAMS))
    print(json.dumps(rows, indent=2) if args.json else "\n".join(markdown(rows, scenarios)))
    sys.exit(not all(found["passed"] for each in rows for found in each["scenarios"].values()))


if __name__ == "__main__":
    main()

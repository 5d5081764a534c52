"""Two real programs of each kind change one file at the same time, under `lastword run`, again and again.

Each reads the file, takes a while, and writes it back with a line of its own. A change is lost if a line is missing at the end and
its program said that it was done. Prints a table in Markdown. Arguments: names of programs, `--runs N`, and `--shared`, which
lets both hold the file and counts what is lost instead of failing."""

import argparse
import json
import os
import subprocess
import sys
import time

from scenarios import PROGRAMS, Space, check
from test_programs import until

# Each program's shell, with what it calls its script.
SHELLS = {
    "claude": ("^Bash$", "command"), "claude-agent-acp": ("^Bash$", "command"), "codex-acp": ("exec_command|shell", "cmd"),
    "opencode-acp": ("^bash$", "command"), "gemini-acp": ("run_shell_command", "command"),
}
ALLOWED = "".join(f'[[approval]]\ntool = "{tool}"\ndecision = "allow"\n' for tool in ("Bash", "bash", "execute", "run_shell_command"))
SHARED = '[[claim]]\npaths = ["**"]\nmode = "shared"\n'
FILE = "shared.txt"
GIT = ("-c", "user.name=x", "-c", "user.email=x@example.com")


def edit(kind, name, number):
    tool, script = SHELLS[kind]
    line = f"cp {FILE} .{name} && sleep 1.5 && echo {name} >> .{name} && mv .{name} {FILE}"
    return f"wait: g{number}\nedit: {tool} " + json.dumps({script: line, "description": "x"})


def both(space, kind, number):
    """One run; returns the lines that are lost, and how often one waited for the other."""
    file, names = space.work / FILE, ("ann", "bob")
    file.write_text("first\n")
    for name in names:
        space.send(f"{name.upper()}-{number}", edit(kind, name, number), name)
    # Both have their prompt before one of them edits.
    until("both programs", lambda: space.model.waiting(f"g{number}") >= 2)
    space.model.release(f"g{number}")
    answers = {name: space.answer(f"{name.upper()}-{number}") for name in names}
    lines = file.read_text().split()
    check(lines[:1] == ["first"], lines)
    told = [name for name in names if "is held by" in answers[name]["body"]]
    lost = [name for name in names if name not in lines and name not in told]
    if os.environ.get("VERBOSE"):
        print(answers, lines, file=sys.stderr)
    return lost, told


def kind_of(kind, runs, shared):
    space = Space(PROGRAMS[kind], ALLOWED + (SHARED if shared else ""))
    try:
        for line in (("init", "-q"), ("add", "."), (*GIT, "commit", "-q", "--allow-empty", "-m", "x")):
            subprocess.run(["git", *line], cwd=space.work, check=True)
        for name in ("ann", "bob"):
            space.start(name)
        began, lost, told, held, seen = time.monotonic(), 0, 0, 0, 0
        for number in range(runs):
            found = both(space, kind, number)
            lost, told = lost + len(found[0]), told + len(found[1])
            events = [json.loads(line) for line in space.lastword("--json", "tail", "-n", "1000").stdout.splitlines()]
            held += sum('"claim_held"' in json.dumps(event) for event in events if event["seq"] > seen)
            seen = events[-1]["seq"]
        seconds = time.monotonic() - began
        until("the end of each claim", lambda: not space.json("claims")["items"])
        tokens = sum(space.json("agent", "show", name)["tokens_today"] for name in ("ann", "bob"))
        return lost, told, held, len(space.model.requests()), tokens, seconds
    finally:
        space.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="*", metavar="PROGRAM", help=", ".join(SHELLS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shared", action="store_true")
    args = parser.parse_args()
    print("| two of | runs | changes lost | told why not | refused with a holder | model requests | tokens | seconds a run |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for kind in args.program or SHELLS:
        try:
            lost, told, held, requests, tokens, seconds = kind_of(kind, args.runs, args.shared)
        except AssertionError as error:
            failed = True
            print(f"| {PROGRAMS[kind].title} | {args.runs} | failed: {error} | | | | | |", flush=True)
            continue
        failed |= lost > 0
        print(f"| {PROGRAMS[kind].title} | {args.runs} | {lost} | {told} | {held} | {requests} | {tokens} | {seconds / args.runs:.1f} |", flush=True)
    sys.exit(failed and not args.shared)


if __name__ == "__main__":
    main()

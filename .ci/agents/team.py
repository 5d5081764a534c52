"""Six real programs change files of one repository at the same time, under `lastword run`: four in one work tree, two in another.

Each edits, renames, deletes, generates, checks out or stashes, as the seed says, and notes when it began and ended in a journal of
its own. What the journals say, made one after the other, has to be what is in the files at the end of each round, and no two
changes of one file may overlap. The broker is killed in one round, and a program in the middle of its edit, with its runner, in
another. Prints a table in Markdown. Arguments: `--rounds N`, `--seed N`."""

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass

from edits import ALLOWED, GIT, SHELLS
from scenarios import OTHER, PROGRAMS, Space, check, kill
from test_programs import until

MAIN = {"ann": "claude", "bob": "codex-acp", "cid": "opencode-acp", "dee": "gemini-acp"}
ASIDE = {"eve": "claude-agent-acp", "fay": "claude"}
FILES = ("a.txt", "b.txt")
GENERATED = "gen/out.txt"
# The rounds, of as many, in which something is killed.
EVERY, BROKER, HOLDER = 5, 2, 4


@dataclass(frozen=True)
class Change:
    """What an agent is told to do, and on which files."""

    kind: str
    file: str = ""
    to: str = ""

    def files(self):
        return set(FILES) if self.kind == "stash" else {self.file, self.to} - {""}

    def script(self, name, line):
        file, to = self.file, self.to
        return {
            "edit": f"cp {file} .{name} && sleep 1 && echo {line} >> .{name} && mv .{name} {file}",
            "rename": f"git mv -f {file} {to}",
            "delete": f"rm {file}",
            "generate": f"sleep 1 && echo {line} > {GENERATED}",
            "checkout": f"git checkout -- {file}",
            "stash": "git stash",
        }[self.kind]


def drawn(rng):
    file, to = rng.sample(FILES, 2)
    kind = rng.choices(["edit", "rename", "delete", "generate", "checkout", "stash"], [6, 1, 1, 1, 1, 1])[0]
    return Change(kind, "" if kind == "stash" else GENERATED if kind == "generate" else file, to if kind == "rename" else "")


@dataclass
class Made:
    """A change as its journal has it: `code` is None if its end isn't there."""

    name: str
    change: Change
    line: str
    began: int
    ended: int | None = None
    code: int | None = None


class Tree:
    """A work tree, and what has to be in it."""

    def __init__(self, path):
        self.path = path
        self.head = {file: [f"first of {file}"] for file in FILES}
        self.index, self.work = dict(self.head), {**self.head, GENERATED: []}

    def apply(self, made):
        """Makes a change that ended well on the model of the tree."""
        change = made.change
        if change.kind == "edit":
            self.work[change.file] = [*self.work[change.file], made.line]
        elif change.kind == "rename":
            self.index[change.to], self.work[change.to] = self.index.pop(change.file), self.work.pop(change.file)
        elif change.kind == "delete":
            del self.work[change.file]
        elif change.kind == "generate":
            self.work[GENERATED] = [made.line]
        elif change.kind == "checkout":
            self.work[change.file] = self.index[change.file]
        else:
            self.index, self.work = dict(self.head), {**self.head, GENERATED: self.work[GENERATED]}

    def restore(self):
        """Brings back what a round deleted or moved."""
        for file in [file for file in FILES if file not in self.work]:
            subprocess.run(["git", "checkout", "-q", "HEAD", "--", file], cwd=self.path, check=True)
            self.index[file] = self.work[file] = self.head[file]

    def found(self):
        files = {file: self.path / file for file in (*FILES, GENERATED)}
        return {file: path.read_text().splitlines() for file, path in files.items() if path.exists()}

    def journal(self, name, number, change):
        """What an agent of this tree did in a round."""
        made = []
        path = self.path / ".journal" / name
        for entry in path.read_text().splitlines() if path.exists() else []:
            round_of, what, *rest = entry.split()
            if int(round_of) != number:
                continue
            if what == "begin":
                made.append(Made(name, change, f"{name}-{number}", int(rest[0])))
            else:
                made[-1].code, made[-1].ended = int(rest[0]), int(rest[1])
        return made

    def settle(self, all_made, careless):
        """Compares the files with what was made; returns the pairs of changes of one file that overlapped. Where the broker is
        away a change is made unclaimed: `careless` takes what is there."""
        whole = sorted((made for made in all_made if made.ended), key=lambda made: made.ended)
        torn = [made for made in all_made if made.ended is None]
        overlaps = [
            (first, second) for at, first in enumerate(whole) for second in whole[:at]
            if first.code == second.code == 0 and first.began < second.ended and second.began < first.ended
            and first.change.files() & second.change.files()]
        # What was killed in the middle was made before its next try, or not at all.
        tries = [whole] + [sorted([*whole, one], key=lambda made: made.ended or made.began) for one in torn]
        found, wanted = self.found(), []
        before = dict(self.index), dict(self.work)
        for attempt in tries:
            self.index, self.work = dict(before[0]), dict(before[1])
            try:
                for made in attempt:
                    if made.code in (0, None):
                        self.apply(made)
            except KeyError:
                continue
            if self.work == found:
                return overlaps
            wanted.append(self.work)
        check(careless, f"{found} found, {wanted} wanted, by {all_made}")
        self.resume(found)
        return overlaps

    def resume(self, found):
        """Goes on with what is in the files, and with an index as it is at the beginning."""
        subprocess.run(["git", "reset", "-q"], cwd=self.path, check=True)
        self.index, self.work = dict(self.head), found


def command(name, change, number):
    tool, script = SHELLS[(MAIN | ASIDE)[name]]
    journal = f".journal/{name}"
    # Without a substitution, which Gemini CLI refuses.
    line = f'date "+{number} begin %s%N" >> {journal}; {change.script(name, f"{name}-{number}")} ' \
        f'&& date "+{number} end 0 %s%N" >> {journal} || date "+{number} end 1 %s%N" >> {journal}'
    return f"wait: g{number}\nedit: {tool} " + json.dumps({script: line, "description": "x"})


class Team:
    """The six, at work in one repository."""

    def __init__(self):
        self.space = Space(PROGRAMS["claude"], ALLOWED + OTHER)
        self.trees, self.counts, self.careless = {}, Counter(), 0
        try:
            self.prepare()
        except BaseException:
            self.space.close()
            raise

    def prepare(self):
        main, aside = self.space.work, self.space.dir / "aside"
        for file in FILES:
            (main / file).write_text(f"first of {file}\n")
        (main / ".gitignore").write_text(".journal\ngen\n")
        for line in (("init", "-q", "--initial-branch=main"), ("add", "."), (*GIT, "commit", "-q", "-m", "x"),
                     ("worktree", "add", "-q", str(aside), "-b", "aside")):
            subprocess.run(["git", *line], cwd=main, check=True)
        for key, value in (("user.name", "x"), ("user.email", "x@example.com")):
            subprocess.run(["git", "config", key, value], cwd=main, check=True)
        for path, names in ((main, MAIN), (aside, ASIDE)):
            for folder in (".journal", "gen"):
                (path / folder).mkdir()
            (path / GENERATED).write_text("")
            tree = Tree(path)
            for name in names:
                self.trees[name] = tree
                self.start(name)

    def start(self, name):
        program = PROGRAMS[(MAIN | ASIDE)[name]]
        home, self.space.work = self.space.work, self.trees[name].path
        try:
            self.space.run(name, program.command, *program.flags, "--grace", "1s")
        finally:
            self.space.work = home

    def round(self, number, rng):
        space, changes = self.space, {name: drawn(rng) for name in MAIN | ASIDE}
        killed = "dee" if number % EVERY == HOLDER else None
        if killed:
            # Nobody takes away the file on which it is killed.
            changes |= {name: Change("edit", FILES[0]) for name in MAIN}
        for tree in set(self.trees.values()):
            tree.restore()
        for name, change in changes.items():
            space.send(f"{name.upper()}-{number}", command(name, change, number), name)
        until("all six", lambda: space.model.waiting(f"g{number}") >= len(changes))
        space.model.release(f"g{number}")

        def made(name):
            return self.trees[name].journal(name, number, changes[name])

        if number % EVERY == BROKER:
            until("a change under way", lambda: any(made(name) for name in changes))
            space.server.kill()
            space.server.wait()
            space.serve()
        if killed:
            until("its edit", lambda: made(killed) and made(killed)[-1].ended is None)
            for group in space.groups(killed):
                kill(group)
            space.runners[killed].kill()
            space.runners[killed].wait()
            self.start(killed)
        answers = {name: space.answer(f"{name.upper()}-{number}") for name in changes}
        until("the end of each claim", lambda: not space.json("claims")["items"])
        for tree in set(self.trees.values()):
            all_made = [one for name in changes if self.trees[name] is tree for one in made(name)]
            overlaps = tree.settle(all_made, number % EVERY == BROKER)
            if number % EVERY == BROKER:
                self.careless += len(overlaps)
            else:
                check(not overlaps, f"changes of one file overlapped: {overlaps}")
        for name, change in changes.items():
            whole = [one for one in made(name) if one.ended]
            told = any(words in answers[name]["body"] for words in ("is held ", "others work in it"))
            outcome = "made" if any(one.code == 0 for one in whole) else "failed" if whole else "refused" if told else "not made"
            self.counts[change.kind, outcome] += 1
            if outcome == "not made":
                print(f"{name} {change}: {answers[name]['body'][:300]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=EVERY)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, began, team = random.Random(args.seed), time.monotonic(), Team()
    try:
        for number in range(args.rounds):
            team.round(number, rng)
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        seconds, requests = time.monotonic() - began, len(team.space.model.requests())
        tokens = sum(team.space.json("agent", "show", name)["tokens_today"] for name in MAIN | ASIDE)
    finally:
        team.space.close()
    outcomes = ("made", "failed", "refused", "not made")
    print(f"| change | {' | '.join(outcomes)} |\n|---|{'---|' * len(outcomes)}")
    for kind in sorted({kind for kind, _ in team.counts}):
        print(f"| {kind} | {' | '.join(str(team.counts[kind, outcome]) for outcome in outcomes)} |")
    print(f"\n{args.rounds} rounds, {requests} model requests, {tokens} tokens, {seconds:.0f} s; no change was lost; without a broker "
          f"{team.careless} overlapped")


if __name__ == "__main__":
    main()

"""What the built site names is there: links, anchors, pictures, and commands of the program.

    check.py DIR PROGRAM

No page takes anything from another host. A command is what begins with `lastword` in code, with its options."""

import functools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

site, program = Path(sys.argv[1]).resolve(), sys.argv[2]
# What was decided or changed once names commands of its time.
HISTORY = re.compile(r"docs/adr/|CHANGELOG|core/|sdk/|examples/")
SUBRESOURCES = {"link": "href", "redoc": "spec-url"} | dict.fromkeys(["img", "script", "iframe", "source", "video"], "src")
wrong: list[str] = []
counts = {"pages": 0, "links": 0, "pictures": 0, "commands": 0}


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.code: list[str] = []
        self.depth = 0
        self.path = path.relative_to(site)
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in SUBRESOURCES and SUBRESOURCES[tag] in given:
            link = given[SUBRESOURCES[tag]]
            self.links.append(link)
            if urlsplit(link).netloc:
                wrong.append(f"{self.path}: takes {link}")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "meta" and given.get("http-equiv") == "refresh":
            self.links.append(given["content"].partition("url=")[2])
        if tag == "img":
            counts["pictures"] += 1
            if not given.get("alt"):
                wrong.append(f"{self.path}: no text in place of {given.get('src')}")
        if tag == "code":
            self.depth = 1
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self.depth = 0

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.code[-1] += data


@functools.cache
def help_of(*command: str) -> tuple[set[str], set[str]]:
    """The options and the commands below a command; `-` if it passes other options on."""
    text = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout
    usage, _, rest = text.partition("\nUsage:")
    has_commands = re.search(r"[<\[]COMMAND[>\]]\n", rest)
    below = re.findall(r"^  ([a-z][a-z-]*)  ", rest.split("\nExamples:")[0], re.M) if has_commands else []
    passed_on = ["-"] if "[ARGS]...\n" in rest else []
    return set(re.findall(r"--[a-z][a-z-]*|(?<=\s)-[a-zA-Z]\b", text) + passed_on), set(below)


def check_command(page: Path, line: str) -> None:
    """Looks the words of one command up; what follows `--`, a comment, a pipe or a redirection is not its own."""
    counts["commands"] += 1
    line = re.sub(r""""[^"]*"|'[^']*'|\$\([^)]*\)""", "TEXT", line)
    words = re.split(r"\s#|\s--(?=\s|$)|[|;&<>`]", line)[0].split()[1:]
    command: list[str] = []
    options, below = help_of()
    named = {word.split("=")[0].rstrip(".,:)…") for word in words if re.match(r"-[-a-zA-Z]", word)}
    values_follow = False
    for word in words:
        if word.startswith("-"):
            values_follow = not command and "=" not in word and word != "--json"
        elif values_follow:
            values_follow = False
        elif word in below:
            command.append(word)
            more, below = help_of(*command)
            options = options | more
        elif below and re.fullmatch(r"[a-z][a-z-]*", word):
            wrong.append(f"{page}: no command `{line}`")
            return
        else:
            break
    for option in set() if "-" in options else named - options - {"--help", "--version", "-h", "-V"}:
        wrong.append(f"{page}: no option {option} of `{line}`")


pages = {path: Page(path) for path in site.rglob("*.html")}
for path, page in pages.items():
    counts["pages"] += 1
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        counts["links"] += 1
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            wrong.append(f"{page.path}: {link} leads nowhere")
        elif parts.fragment and unquote(parts.fragment) not in pages[target].ids:
            wrong.append(f"{page.path}: {link} has no such anchor")
    if not HISTORY.search(str(page.path)):
        for line in (line for code in page.code for line in code.replace("\\\n", " ").replace("sudo -u lastword", "sudo").splitlines()):
            if (command := re.search(r"(?:^|[\s(])(lastword (?!\.toml).*)", line)) and "#" not in line[: command.start()]:
                check_command(page.path, command[1])
print(*sorted(set(wrong)), sep="\n")
print(", ".join(f"{count} {what}" for what, count in counts.items()))
sys.exit(bool(wrong) or min(counts.values()) == 0)

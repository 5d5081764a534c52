"""The MCP conformance suite: all that both revisions require, against the fixtures; and what needs none of the suite's
own tools and texts once more, against the surface that agents have."""

import re
import tempfile

from broker import Broker, FIXTURES
from node import run
from passage import Passage

# Each revision, and how many scenarios it requires of a server.
REQUIRED = {"2026-07-28": 37, "2025-11-25": 30}
# What each revision asks of the agents' own surface: scenarios that call no tool of the suite's.
OWN = {
    "2026-07-28": [
        "caching",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-sse-multiple-streams",
        "tools-list",
    ],
    "2025-11-25": [
        "dns-rebinding-protection",
        "ping",
        "prompts-list",
        "resources-list",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-list",
    ],
}
SCENARIO = re.compile(r"^. ([a-z0-9-]+): ([0-9]+) passed, ([0-9]+) failed", re.MULTILINE)
NOT_REQUIRED = re.compile(r"^  (.) ([a-z0-9-]+) \((?:extension|pending|added-after-release)\)", re.MULTILINE)
# An optional extension that the server does not announce.
ABSENT = "tasks-"


def whole(revision, url):
    """All scenarios of a revision; those that it requires have to pass, and of the others all but the tasks'."""
    code, said, errors = run("conformance", "server", "--url", url, "--requirements", revision)
    optional = {name: mark == "✓" for mark, name in NOT_REQUIRED.findall(said)}
    counted = [(name, int(passed), int(failed)) for name, passed, failed in SCENARIO.findall(said)]
    required = [row for row in counted if row[0] not in optional]
    failed = sum(row[2] for row in required)
    assert code == 0 and failed == 0, f"{revision}: exit code {code}\n{said}\n{errors}"
    assert len(required) == REQUIRED[revision], f"{revision}: {len(required)} scenarios ran\n{said}"
    missed = [name for name, well in optional.items() if not well and not name.startswith(ABSENT)]
    assert not missed, f"{revision}: {missed}\n{said}"
    passed = sum(row[1] for row in required)
    more = sum(optional.values())
    print(
        f"{revision}: {len(required)} required scenarios, {passed} checks passed, {failed} failed;"
        f" {more} of {len(optional)} others too"
    )


def own(revision, url):
    """The scenarios that the agents' own surface can pass."""
    checks = 0
    for scenario in OWN[revision]:
        chosen = ["--scenario", scenario, "--spec-version", revision]
        with tempfile.TemporaryDirectory(prefix="lastword-peers-") as results:
            code, said, errors = run("conformance", "server", "--url", url, *chosen, "-o", results)
        passed = re.search(r"Passed: ([0-9]+)/([0-9]+)", said)
        assert code == 0 and passed and passed[1] == passed[2] != "0", f"{scenario}: {code}\n{said}\n{errors}"
        checks += int(passed[1])
    print(f"{revision}, the agents' surface: {len(OWN[revision])} scenarios, {checks} checks passed")


with Broker(program=FIXTURES) as broker:
    for revision in REQUIRED:
        whole(revision, f"{broker.url}/mcp")
with Broker() as broker, Passage(broker.url, broker.agent("kilo")) as passage:
    for revision in OWN:
        own(revision, f"{passage.url}/mcp")

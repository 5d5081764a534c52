"""The server keeps what the OpenAPI document says, whatever is sent to it.

schemathesis makes up calls from the document, valid and not, with a human's token and then with that of an agent that
has a turn open. No answer may be a 5xx, and each has to be as the document says. `/v1/events` never ends, so its
first events are looked at here.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import requests
from broker import ROOT, Broker

HERE = Path(__file__).resolve().parent
RUN_SECONDS_MAX = 600
# Made-up calls per operation and phase. A campaign takes more: CONTRACT_EXAMPLES=100.
EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "30"))
# Every call counts for the limits of the one agent that makes them all.
# All wrong tokens come from one address here.
LIMITS = """auth_failures_max = 60000
[limits]
turn_refusals_max = 1000000
pair_messages_max = 1000000
sender_messages_max = 1000000
fan_out_targets_max = 1000000
claims_max = 1000000
"""


def fuzz(broker, who, token, examples):
    """Runs all phases with one token; gives the number of calls."""
    command = [
        Path(sys.executable).parent / "schemathesis",
        f"--config-file={HERE / 'schemathesis.toml'}",
        "run",
        f"{broker.url}/openapi.json",
        "--phases=examples,coverage,fuzzing,stateful",
        f"--max-examples={examples}",
        # The stream has no end to wait for.
        "--exclude-path=/v1/events",
        # In its place is the check of hooks.py, which knows what is absent.
        "--exclude-checks=negative_data_rejection",
        "--seed=1",
        "--generation-deterministic",
        "--no-color",
    ]
    surroundings = {**os.environ, "TOKEN": token, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
    began = time.monotonic()
    run = subprocess.run(
        command, cwd=broker.directory, env=surroundings, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    if run.returncode != 0:
        sys.exit(f"as {who}:\n{run.stdout}\n{run.stderr}")
    calls = re.search(r"(\d+) generated", run.stdout)
    assert calls, run.stdout
    print(f"as {who}: {calls[1]} calls in {time.monotonic() - began:.0f} s, each answered as the document says")


def events(broker):
    """Each of the first server-sent events is an Event."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    event = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/Event", "components": document["components"]}
    )
    headers = {"Authorization": f"Bearer {broker.operator}"}
    seen = 0
    with requests.get(f"{broker.url}/v1/events?after=0", headers=headers, stream=True, timeout=30) as answer:
        assert answer.headers["content-type"] == "text/event-stream", answer.headers
        for line in answer.iter_lines(decode_unicode=True):
            if line.startswith("data:"):
                event.validate(json.loads(line.removeprefix("data:")))
                seen += 1
            if seen == 5:
                break
    print(f"{seen} events are as the document says")


with Broker(LIMITS) as broker:
    fuzz(broker, "a human", broker.operator, EXAMPLES)
with Broker(LIMITS) as broker:
    kilo = broker.agent("kilo", actions=["review"])
    broker.agent("hive", groups=["team"])
    broker.call("POST", "/v1/messages", json={"type": "request", "to": "kilo", "ref": "T-1", "body": "do it"})
    broker.call("GET", "/v1/inbox", kilo)
    events(broker)
    fuzz(broker, "an agent", kilo, EXAMPLES)

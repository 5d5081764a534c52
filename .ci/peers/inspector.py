"""The MCP inspector: the tools' schemas are portable, and what else there is can be listed, read and got."""

import json

from broker import Broker
from node import run

CALLS = [
    ("tools/list", "tools", 6, ["--strict"]),
    ("tools/list?tools=all", "tools", 15, ["--strict"]),
    ("resources/list", "resources", 2, []),
    ("resources/templates/list", "resourceTemplates", 1, []),
    ("resources/read", "contents", 1, ["--uri", "lastword://inbox"]),
    ("prompts/list", "prompts", 1, []),
    ("prompts/get", "messages", 1, ["--prompt-name", "lastword"]),
]

with Broker() as broker:
    token = broker.agent("kilo")
    for call, member, count, more in CALLS:
        method, _, query = call.partition("?")
        header = ["--header", f"Authorization: Bearer {token}"]
        where = ["--cli", f"{broker.url}/mcp?{query}".rstrip("?"), "--transport", "http", *header]
        code, said, errors = run("mcp-inspector", *where, "--method", method, *more)
        assert code == 0 and len(json.loads(said)[member]) == count, f"{call}: {code}\n{said}\n{errors}"
        assert "Warning" not in errors and "Error" not in errors, f"{call}:\n{errors}"
print(f"the inspector made {len(CALLS)} calls, and has nothing to say of the tools' schemas")

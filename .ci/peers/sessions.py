"""The AsyncAPI document is valid, and the server gives out the one in the repository."""

import json

import requests
from broker import ROOT, Broker
from node import MODULES, node

kept = ROOT / "docs" / "asyncapi.json"
code, operations, errors = node(ROOT / ".ci" / "peers" / "asyncapi.cjs", MODULES, kept)
assert code == 0, errors
with Broker() as broker:
    served = requests.get(f"{broker.url}/asyncapi.json", timeout=30).json()
assert served == json.loads(kept.read_text()), "the server gives out another document than docs/asyncapi.json"
print(f"docs/asyncapi.json is valid AsyncAPI 3: {operations.strip()} operations, and the server gives out the same")

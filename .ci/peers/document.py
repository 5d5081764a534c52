"""The OpenAPI document is valid, and the server gives out the one in the repository."""

import json

import requests
from broker import ROOT, Broker
from openapi_spec_validator import OpenAPIV31SpecValidator

kept = json.loads((ROOT / "docs" / "openapi.json").read_text())
OpenAPIV31SpecValidator(kept).validate()
with Broker() as broker:
    served = requests.get(f"{broker.url}/openapi.json", timeout=30).json()
assert served == kept, "the server gives out another document than docs/openapi.json"
calls = sum(len(path) for path in kept["paths"].values())
print(f"docs/openapi.json is valid OpenAPI {kept['openapi']}: {calls} calls, and the server gives out the same")

"""What schemathesis does not know of the broker."""

import re

import schemathesis
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection

# Formats that JSON Schema has no words for.
FORMATS = {
    "cron": ["0 9 * * *", "*/30 * * * *", "15 8 * * MON-FRI", "0 0 1 * *", "0 12 29 2 *"],
    "time-zone": ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata"],
    "ref-template": ["NIGHTLY-{date}", "weekly-{n}", "{date}/{n}", "REPORT"],
}
# Its body may be left out. A made-up wrong body is left out now and then as well, and the call is right.
UNCHECKED = ["POST /v1/agents/{name}/token"]

for name, valid in FORMATS.items():
    schemathesis.openapi.format(name, st.sampled_from(valid))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Makes of the rules that generators of types don't see (`x-also`) such as schemathesis does."""
    rules(raw_schema)


def rules(schema):
    for member in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []:
        rules(member)
    if isinstance(schema, dict) and "x-also" in schema:
        schema["allOf"] = schema.get("allOf", []) + schema.pop("x-also")


@schemathesis.hook
def before_call(context, case, kwargs):
    # A long poll with a valid wait would take as long as it says.
    if case.query and re.fullmatch(r"[0-9]{1,15}(ms|s|m)?", str(case.query.get("wait", ""))):
        case.query["wait"] = "2ms"
    # A turn's token is signed: any that is made up is refused, and nothing else would be tried.
    case.headers.pop("Lastword-Turn", None)
    # To JSON Schema 2.0 is a whole number; to serde, as to most readers of JSON, it is a fraction.
    case.body = whole(case.body)


@schemathesis.check
def refuses_what_is_wrong(ctx, response, case):
    """The check of wrong data, but for optional texts that are empty: the broker reads them as absent."""
    body = case.body if isinstance(case.body, dict) else {}
    if "" in [*(case.query or {}).values(), *body.values()] or case.operation.label in UNCHECKED:
        return None
    return negative_data_rejection(ctx, response, case)


def whole(value):
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**64:
        return int(value)
    if isinstance(value, dict):
        return {name: whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return value

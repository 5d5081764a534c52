"""JSON whose numbers stay as they were written.

The broker compares the arguments of a held call digit by digit: to it 1.50, as a human may write it, isn't the 1.5 that
Python makes of it.
"""

from __future__ import annotations

import json
from typing import Any, cast


class Written(float):
    """A number, with the text that it was read from."""

    text: str

    def __new__(cls, text: str) -> Written:
        number = super().__new__(cls, text)
        number.text = text
        return number


def loads(text: str | bytes) -> Any:
    """Reads JSON."""
    return json.loads(text, parse_float=Written)


def dumps(value: Any) -> str:
    """Writes JSON, with the numbers that were read as they were written."""
    if isinstance(value, Written):
        return value.text
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return "{" + ",".join(f"{json.dumps(name)}:{dumps(one)}" for name, one in members.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dumps, cast(list[Any], value))) + "]"
    return json.dumps(value)

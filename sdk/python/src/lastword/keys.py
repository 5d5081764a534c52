"""The keys of a turn's calls, by which a handler that runs again gets the results that it had."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

Keys = Callable[[str, Any], str]
"""Returns the key of a call within its request, from its name and its body."""


class ByPlace:
    """The place of the call in the handler, which makes the same calls in the same order when it runs again."""

    def __init__(self) -> None:
        self._place = 0

    def __call__(self, call: str, body: Any) -> str:
        self._place += 1
        return str(self._place)


class ByContent:
    """What the call says, and how many calls of the run said the same before: for a handler in which a model decides.

    A run that says something else asks anew. One that says the same gets the first result, whatever came in between.
    """

    def __init__(self) -> None:
        self._said: Counter[str] = Counter()

    def __call__(self, call: str, body: Any) -> str:
        said = digest(call, body)
        self._said[said] += 1
        return f"{said}.{self._said[said]}"


def digest(*what: Any) -> str:
    """A short name for a content; the order of its members doesn't matter."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]

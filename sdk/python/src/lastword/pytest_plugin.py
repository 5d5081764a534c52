"""The pytest fixture `lastword`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .testing import Broker


@pytest.fixture
def lastword() -> Iterator[Broker]:
    """A broker of the test's own."""
    with Broker() as broker:
        yield broker

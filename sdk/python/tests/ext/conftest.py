"""The framework that LASTWORD_FRAMEWORK names, with a scripted model."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import cast

import pytest
from scripted import Rig

sys.path.insert(0, str(Path(__file__).parents[4] / "examples/python"))


@pytest.fixture
def rig() -> Rig:
    return cast(Rig, importlib.import_module(f"rig_{os.environ['LASTWORD_FRAMEWORK']}"))

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
def rig(request: pytest.FixtureRequest) -> Rig:
    module = importlib.import_module(f"rig_{os.environ['LASTWORD_FRAMEWORK']}")
    if any(word in request.node.name for word in getattr(module, "WITHOUT", ())):
        pytest.skip("the framework can't")
    return cast(Rig, module)

"""The framework that LASTWORD_FRAMEWORK names, with a scripted model."""

from __future__ import annotations

import importlib
import os
from typing import cast

import pytest
from scripted import Rig


@pytest.fixture
def rig() -> Rig:
    return cast(Rig, importlib.import_module(f"rig_{os.environ['LASTWORD_FRAMEWORK']}"))

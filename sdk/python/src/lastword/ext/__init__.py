"""Adapters: an agent of a framework as an agent of the team. One module and one extra a framework."""

from .team import current_turn, hint
from .words import denied, prompt, quoted

__all__ = ["current_turn", "denied", "hint", "prompt", "quoted"]

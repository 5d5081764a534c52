"""Adapters: an agent of a framework as an agent of the team. One module and one extra a framework.

What the modules are made of is here, for a framework that has none.
"""

from ..words import denied, prompt, quoted
from .team import Denied, ask_agent, current_turn, held, hint, list_agents, serving

__all__ = [
    "Denied",
    "ask_agent",
    "current_turn",
    "denied",
    "held",
    "hint",
    "list_agents",
    "prompt",
    "quoted",
    "serving",
]

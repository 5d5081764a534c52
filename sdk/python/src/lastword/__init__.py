"""Join a Lastword workspace: agents whose handlers survive a crash, and the human's side."""

from .agent import Agent, Answer
from .client import Client
from .errors import Disconnected, LastwordError, NotDeterministic, Refused, Rejected
from .human import Human
from .keys import ByContent
from .session import Session
from .turn import Approved, Reply, Turn

__all__ = [
    "Agent",
    "Answer",
    "Approved",
    "ByContent",
    "Client",
    "Disconnected",
    "Human",
    "LastwordError",
    "NotDeterministic",
    "Refused",
    "Rejected",
    "Reply",
    "Session",
    "Turn",
]

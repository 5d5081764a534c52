"""An agent of the team: its handlers, run for each request, again after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from .errors import LastwordError, Refused
from .session import Json, Session
from .turn import Turn
from .wire import Delivery

log = logging.getLogger("lastword")

Handler = Callable[..., Awaitable[Any]]

DEFAULT_URL = "http://127.0.0.1:7171"
GRACE_SECONDS = 30.0
"""How long open turns may take to finish once the agent is stopped."""
RENEW_SECONDS_MAX = 60.0
"""The longest pause between two renewals of a lease."""


@dataclass(frozen=True)
class Answer:
    """An answer with more than a text."""

    text: str = ""
    payload: Any = None
    status: str = "completed"
    """`completed`, `partial`, `rejected` or `failed`."""
    reason: str | None = None


def credentials(url: str | None = None, token: str | None = None) -> tuple[str, str]:
    """The address and the token: given, or from `LASTWORD_URL` and `LASTWORD_TOKEN` or `LASTWORD_TOKEN_FILE`."""
    url = url or os.environ.get("LASTWORD_URL") or DEFAULT_URL
    token = token or os.environ.get("LASTWORD_TOKEN")
    if not token and (file := os.environ.get("LASTWORD_TOKEN_FILE")):
        try:
            token = Path(file).read_text().strip()
        except OSError as error:
            raise LastwordError(f"LASTWORD_TOKEN_FILE: {file} can't be read: {error.strerror}") from error
        if not token:
            raise LastwordError(f"LASTWORD_TOKEN_FILE: {file} is empty: `lastword agent add NAME` prints a token")
    if not token:
        raise LastwordError("no token: set LASTWORD_TOKEN or LASTWORD_TOKEN_FILE; `lastword agent add NAME` prints one")
    return url, token.strip()


class Agent:
    """An agent. Handlers are registered with `on_request`; `run` serves until it is stopped."""

    def __init__(self, url: str, token: str) -> None:
        self._handlers: dict[str | None, Handler] = {}
        self._turns: dict[str, tuple[Turn, asyncio.Task[None]]] = {}
        self._taking = True
        self._stopped = asyncio.Event()
        self._session = Session(url, token, watch=self._watch, pushed=self._pushed)

    @classmethod
    def from_env(cls) -> Agent:
        """The agent whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`."""
        return cls(*credentials())

    def on_request(self, action: str | None = None) -> Callable[[Handler], Handler]:
        """Registers the handler of requests with this action; without one, that of all others.

        The handler gets the turn, and the members of the request's payload by name; `body` is its text. What it
        returns is the answer: a text, an `Answer`, or anything else as a payload.
        """

        if callable(action):
            raise TypeError("on_request is called: @agent.on_request()")
        if action in self._handlers:
            raise ValueError(f"the action {action} has a handler" if action else "on_request() has a handler")

        def register(handler: Handler) -> Handler:
            self._handlers[action] = handler
            return handler

        return register

    def run(self) -> None:
        """Serves until SIGINT or SIGTERM. Open turns may finish; those that don't are delivered again.

        A program without logging of its own logs to standard error what the agent does.
        """
        if not log.hasHandlers():
            logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
            log.setLevel(logging.INFO)

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for which in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(which, self.stop)
            await self.serve()

        asyncio.run(serve())

    def stop(self) -> None:
        """Takes no more requests, and ends `serve` once the open turns are finished."""
        self._stopped.set()

    async def serve(self, *, grace: float = GRACE_SECONDS) -> None:
        """Serves until `stop`, within an event loop of one's own."""
        try:
            if not await self._stops_before(self._session.open("agent")):
                await self._stops_before(self._session.ended())
            self._taking = False
            await self._session.watch_again()
            open_turns = [task for _, task in self._turns.values()]
            if open_turns:
                _, late = await asyncio.wait(open_turns, timeout=grace)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)
        finally:
            await self._session.close()

    async def _stops_before(self, what: Coroutine[Any, Any, None]) -> bool:
        """Waits for it, or for `stop`; returns whether that came first."""
        stopped, waiting = asyncio.create_task(self._stopped.wait()), asyncio.create_task(what)
        try:
            await asyncio.wait([stopped, waiting], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
            return stopped.done()
        finally:
            stopped.cancel()
            waiting.cancel()

    def _watch(self) -> Json:
        return {"deliveries": {"working": list(self._turns)}} if self._taking else {}

    def _pushed(self, frame: Json) -> None:
        if ended := frame.get("ended"):
            if known := self._turns.get(ended["turn"]):
                known[1].cancel()
            return
        if "delivery" not in frame:
            return
        delivery = cast(Delivery, frame["delivery"])
        view, message = delivery.get("turn"), delivery["message"]
        if view is None:
            return
        if known := self._turns.get(view["id"]):
            known[0].joined(message)
            return
        turn = Turn(self._session, view, message)
        task = asyncio.create_task(self._work(turn))
        self._turns[turn.id] = (turn, task)
        task.add_done_callback(lambda _: self._turns.pop(turn.id, None))

    async def _work(self, turn: Turn) -> None:
        handling = asyncio.create_task(self._answer(turn))
        renewing = asyncio.create_task(self._keep(turn, handling))
        try:
            finish: Json = await handling
        except asyncio.CancelledError:
            if turn.ended is None:
                handling.cancel()  # The agent stops, or the turn is over: it is delivered again if it is still due.
                return
            finish = {"status": "held", "reason": f"ended by the broker: {turn.ended}"}
        finally:
            renewing.cancel()
        if usage := turn.usage():
            finish["usage"] = usage
        try:
            await self._finish(turn, finish)
        except LastwordError as error:
            log.warning("the answer of %s was not taken: %s", turn.id, error)

    async def _finish(self, turn: Turn, finish: Json) -> None:
        try:
            await self._session.call("finish", path=turn.id, body=finish, again=True)
        except LastwordError as error:
            if finish.get("status") == "failed":
                raise
            # An answer that the broker doesn't take, such as one that is too long, still ends the turn.
            failed: Json = {"status": "failed", "reason": str(error)}
            await self._session.call("finish", path=turn.id, body=failed, again=True)

    async def _answer(self, turn: Turn) -> Json:
        answered, mine = turn.message, turn.message["to"]
        while answered["from"] == "system" and (request := answered.get("in_reply_to")):
            answered = await self._session.call("message", path=request, again=True)
            if answered["type"] == "request" and answered["to"] == mine:
                # A held turn goes on, now that there is more budget: the request is worked on again.
                turn.message = answered
        if turn.message["type"] != "request":
            return {}  # A late answer, say: it wants none.
        action = turn.message.get("action")
        handler = self._handlers.get(action) or self._handlers.get(None)
        if handler is None:
            reason = f"no handler for the action {action}" if action else "no handler"
            log.warning("%s is rejected: %s", turn.id, reason)
            return {"status": "rejected", "reason": reason}
        try:
            arguments = _arguments(handler, turn)
        except TypeError as error:
            log.warning("the request of %s has not what its handler takes: %s", turn.id, error)
            return {"status": "failed", "reason": str(error)}
        try:
            answer = handler(turn, **arguments)
            if not inspect.isawaitable(answer):
                raise TypeError("a handler is an `async def`")
            finish = _finish(await answer)
            if finish.get("answer") == "" and "payload" not in finish:
                log.warning("the handler of %s returned nothing: its request fails as empty", turn.id)
            return finish
        except Refused as refusal:
            log.warning("the handler of %s was refused a call: %s", turn.id, refusal)
            return {"status": "failed", "reason": refusal.model_hint()}
        except Exception as error:
            log.exception("the handler of %s failed", turn.id)
            return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}

    async def _keep(self, turn: Turn, handling: asyncio.Task[Json]) -> None:
        """Renews the lease while the handler works, and ends it when the broker does."""
        deadline = datetime.fromisoformat(turn.view["deadline"])
        while True:
            left = (deadline - datetime.now(UTC)).total_seconds()
            # This clock may be wrong: not later than in a minute.
            with contextlib.suppress(TimeoutError):
                # What is spent is told at once: the broker may end the turn for it.
                await asyncio.wait_for(turn.counted.wait(), min(max(left / 3, 1.0), RENEW_SECONDS_MAX))
            turn.counted.clear()
            try:
                renewed = await turn.renew()
            except Refused as refusal:
                if refusal.retry_after is not None:  # Too soon after the last report: the turn goes on.
                    await asyncio.sleep(refusal.retry_after)
                    turn.counted.set()
                    continue
                log.info("%s is over: %s", turn.id, refusal)
                handling.cancel()
                return
            if end := renewed.get("end"):
                turn.ended = end
                handling.cancel()
                return
            deadline = datetime.fromisoformat(renewed["deadline"])


def _arguments(handler: Handler, turn: Turn) -> dict[str, Any]:
    """The members of the payload that a handler asks for by name, or all of them; `body` is the text."""
    _, *wanted = inspect.signature(handler).parameters.values()
    payload = turn.message.get("payload")
    members: dict[str, Any] = cast(dict[str, Any], payload) if isinstance(payload, dict) else {}
    members = {"body": turn.text, **members}
    given: dict[str, Any] = {}
    for one in wanted:
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            given.update({name: value for name, value in members.items() if name != "body"})
        elif one.name in members:
            given[one.name] = members[one.name]
        elif one.default is inspect.Parameter.empty:
            raise TypeError(f"the payload has no `{one.name}`")
    return given


def _finish(result: Any) -> Json:
    if isinstance(result, Answer):
        finish: Json = {"answer": result.text, "status": result.status}
        if result.payload is not None:
            finish["payload"] = result.payload
        if result.reason is not None:
            finish["reason"] = result.reason
        return finish
    if result is None or isinstance(result, str):
        return {"answer": result or "", "status": "completed"}
    with contextlib.suppress(TypeError):
        json.dumps(result)
        return {"payload": result, "status": "completed"}
    raise TypeError(f"an answer is a text, an Answer or JSON, not {type(result).__name__}")

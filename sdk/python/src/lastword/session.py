"""One WebSocket that carries every call and what the broker pushes. It connects again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from .errors import Disconnected, LastwordError, Refused, refused
from .numbers import dumps, loads

log = logging.getLogger("lastword")

SUBPROTOCOL = Subprotocol("lastword.v1")
PAUSE_MIN, PAUSE_MAX = 0.2, 15.0
"""Seconds between two attempts to connect; each is twice the one before."""
FRAME_BYTES_MAX = 64 << 20
CALL_BYTES_MAX = 656 << 10
"""The longest call that the broker reads."""
EXACT_CALLS = {"request_approval", "use_approval", "approve"}
"""Calls with arguments that the broker compares digit by digit."""
CALLS_WAITING_MAX = 128
"""The broker reads no further calls of a session while 256 wait for their replies."""
ACKNOWLEDGED_TOGETHER = 64
"""Deliveries. The broker pushes up to 256 that are not acknowledged."""

Json = dict[str, Any]


@dataclass
class _Call:
    text: str
    again: bool
    sent: bool = False
    reply: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Session:
    """A session of one agent or human. `async with` opens it."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        watch: Callable[[], Json | None] = lambda: None,
        pushed: Callable[[Json], None] = lambda frame: None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise LastwordError(f"the address {url} has no http:// or https:// before it")
        self._address = url.rstrip("/").replace("http", "ws", 1) + "/v1/session"
        self._token = token
        self._watch = watch
        self._pushed = pushed
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._socket: ClientConnection | None = None
        self._open = asyncio.Event()
        self._ended: LastwordError | None = None
        self._is_broken = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Session:
        await self.open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def open(self, kind: Literal["agent", "human"] | None = None) -> None:
        """Opens the session; raises if the broker refuses it, or if the token isn't one of this kind."""
        self._task = asyncio.create_task(self._live())
        opened = asyncio.create_task(self._open.wait())
        try:
            await asyncio.wait({self._task, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self._ended is not None:
            raise self._ended
        if kind is None:
            return
        # A narrowed token may not be allowed to look.
        with contextlib.suppress(Refused):
            me = await self.call("agent", path="me", again=True)
            if me["kind"] != kind:
                way = "`lastword agent add NAME` prints an agent's" if kind == "agent" else "humans have their own"
                raise LastwordError(f"the token is that of {me['name']}, a token of {_a(me['kind'])}: {way}")
            log.info("the session of %s at %s is open", me["name"], self._address)

    async def close(self) -> None:
        """Closes the session."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def ended(self) -> None:
        """Waits until the session has ended for good; raises why, such as a token that isn't valid any more."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._ended is not None:
            raise self._ended

    @property
    def is_crowded(self) -> bool:
        """Whether so many calls wait for their replies that no further one should wait for long."""
        return len(self._calls) >= CALLS_WAITING_MAX

    async def call(
        self,
        call: str,
        *,
        path: str | None = None,
        query: Json | None = None,
        key: str | None = None,
        turn: str | None = None,
        body: Any = None,
        again: bool | None = None,
    ) -> Any:
        """Makes a call and returns its result; `None` if it has none.

        A call that is broken off is made again where that is safe: with a key, or with `again`. Any other raises
        `Disconnected`.
        """
        if self._ended is not None:
            raise self._ended
        members = {"path": path, "query": query, "key": key, "turn": turn, "body": body}
        number = next(self._numbers)
        frame = {"id": number, "call": call, **{name: value for name, value in members.items() if value is not None}}
        text = (dumps if call in EXACT_CALLS else json.dumps)(frame)
        if len(text) > CALL_BYTES_MAX:
            # The broker would end the session, and each one after it.
            raise LastwordError(f"the call {call} has {len(text)} bytes, and may have {CALL_BYTES_MAX}")
        made = _Call(text, key is not None if again is None else again)
        self._calls[number] = made
        try:
            await self._send(made)
            return await made.reply
        finally:
            self._calls.pop(number, None)

    async def _send(self, call: _Call) -> None:
        if self._socket is None:
            return  # It is sent once the session is open.
        # A break is noticed where the session reads.
        call.sent = True
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(call.text)

    async def _live(self) -> None:
        pause = PAUSE_MIN
        while True:
            try:
                headers = {"Authorization": f"Bearer {self._token}"}
                async with connect(
                    self._address, subprotocols=[SUBPROTOCOL], additional_headers=headers, max_size=FRAME_BYTES_MAX
                ) as socket:
                    pause = PAUSE_MIN
                    await self._serve(socket)
            except InvalidStatus as error:
                if error.response.status_code in (400, 401, 403):
                    self._end(_problem(error))
                    return
                self._failed(error)
            except (OSError, WebSocketException, TimeoutError) as error:
                self._failed(error)
            finally:
                self._socket = None
            if self._ended is not None:
                return
            self._break()
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(2 * pause, PAUSE_MAX)

    def _failed(self, error: Exception) -> None:
        # Said once for each break: the attempts go on.
        level = logging.DEBUG if self._is_broken else logging.WARNING
        log.log(level, "no session at %s, which is tried again: %s", self._address, error)
        self._is_broken = True

    async def _serve(self, socket: ClientConnection) -> None:
        if self._is_broken:
            log.info("the session at %s is open again", self._address)
        self._socket, self._is_broken = socket, False
        await self.watch_again()
        for call in list(self._calls.values()):
            await self._send(call)
        self._open.set()
        try:
            unacknowledged = 0
            async for text in socket:
                frame = loads(text)
                self._hear(frame)
                # The end of a turn acknowledges its deliveries, too: this is for those who have many open.
                unacknowledged += "delivery" in frame
                if unacknowledged >= ACKNOWLEDGED_TOGETHER:
                    unacknowledged = 0
                    ack = {"id": next(self._numbers), "call": "ack", "body": {"cursor": frame["cursor"]}}
                    await socket.send(json.dumps(ack))
        except ConnectionClosed as closed:
            frame = closed.rcvd
            if frame is not None and frame.code == 1008 and "token" in frame.reason:
                self._end(LastwordError(frame.reason))

    async def watch_again(self) -> None:
        """Says anew what is to be pushed."""
        watch = self._watch()
        if self._socket is not None and watch is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(json.dumps({"id": next(self._numbers), "call": "watch", "body": watch}))

    def _hear(self, frame: Json) -> None:
        if "id" not in frame:
            self._pushed(frame)
            return
        call = self._calls.get(frame["id"])
        if call is None:
            if "problem" in frame:
                log.warning("the broker refuses: %s", frame["problem"]["detail"])
            return
        if call.reply.done():
            return
        if "problem" in frame:
            call.reply.set_exception(refused(frame["problem"]))
        else:
            call.reply.set_result(frame.get("body"))

    def _break(self) -> None:
        for call in self._calls.values():
            if call.sent and not call.again and not call.reply.done():
                call.reply.set_exception(Disconnected("the session broke before the reply came"))

    def _end(self, error: LastwordError) -> None:
        self._ended = error
        for call in self._calls.values():
            if not call.reply.done():
                call.reply.set_exception(error)


def _problem(error: InvalidStatus) -> LastwordError:
    try:
        return refused(json.loads(error.response.body or b""))
    except (ValueError, KeyError):
        return LastwordError(str(error))


def _a(kind: str) -> str:
    return "a human" if kind == "human" else f"an {kind}"

"""A turn: one request that an agent works on, and what its handler may ask for meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, unquote

from .errors import Disconnected, LastwordError, NotDeterministic, Refused, Rejected
from .keys import ByPlace, Keys
from .wire import (
    AgentView,
    ApprovalView,
    ClaimView,
    EscalationView,
    ModelUsage,
    StepResult,
    StoredMessage,
    TurnView,
    Usage,
)

if TYPE_CHECKING:
    from .session import Json, Session

Result = TypeVar("Result")

WAIT = "5m"
"""The longest wait of one call. What takes longer is asked for again."""
MODELS_MAX, MODEL_CHARACTERS_MAX = 8, 64
"""The models that a report names, and the characters of a name."""
LOOK_SECONDS = 30.0
"""How often a turn looks whether its question was answered, beside being told."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    message: StoredMessage

    @property
    def text(self) -> str:
        """What it says."""
        return self.message["body"]

    @property
    def payload(self) -> Any:
        """Its structured content; `None` if it has none."""
        return self.message.get("payload")

    @property
    def status(self) -> str:
        """`completed`, `partial`, `rejected`, `failed`, `timed_out`, `exhausted` or `cancelled`."""
        return str(self.message.get("status") or "completed")

    @property
    def reason(self) -> str | None:
        """Why it is no full answer, such as the exception of the other agent's handler."""
        return self.message.get("reason")

    @property
    def failed(self) -> bool:
        """Whether it is no answer to build on."""
        return self.status not in ("completed", "partial")


@dataclass(frozen=True)
class Approved:
    """A call that may be made now, once."""

    approval: ApprovalView
    repeated: bool
    """Whether an earlier run of this handler has used the approval: it may have made the call already."""

    @property
    def arguments(self) -> Any:
        """The arguments to use: as asked, or as a human edited them."""
        return self.approval["arguments"]


class Turn:
    """The open turn of a handler.

    Each call that changes something has a key: the request's id and the place of the call in the handler. A handler
    that runs again, after a crash or a lost lease, makes the same calls in the same order and gets the results that it
    had. One in which a model decides sets `keys` to `ByContent()`.
    """

    def __init__(self, session: Session, view: TurnView, message: StoredMessage) -> None:
        self._session = session
        self._answered: dict[str, asyncio.Event] = {}
        self._responses: dict[str, StoredMessage] = {}
        self._usage: Usage = {"input_tokens": 0, "output_tokens": 0}
        self._models: dict[str, ModelUsage] = {}
        self.view = view
        self.message = message
        self.ended: str | None = None
        """Why the broker ended the turn, such as `budget`, if a renewal told it."""
        self.keys: Keys = ByPlace()
        """Names each call within the request."""
        self.counted = asyncio.Event()
        """Set when something was spent that isn't reported yet."""

    @property
    def id(self) -> str:
        """The turn, such as `turn-3`."""
        return self.view["id"]

    @property
    def text(self) -> str:
        """What the request says."""
        return self.message["body"]

    @property
    def sender(self) -> str:
        """Who asks."""
        return self.message["from"]

    async def ask(
        self,
        to: str,
        text: str = "",
        *,
        action: str | None = None,
        payload: Any = None,
        ref: str | None = None,
        deadline: float | None = None,
    ) -> Reply:
        """Asks another agent (`kilo`, `@group`, `#action`) and waits for the answer, for up to `deadline` seconds.

        Doesn't raise when the other one fails: see `failed` and `reason` of the reply.
        """
        body: Json = {"type": "request", "to": to, "body": text}
        if deadline is not None:
            body["deadline_ms"] = round(deadline * 1000)
        for name, value in {"action": action, "payload": payload, "ref": ref}.items():
            if value is not None:
                body[name] = value
        key = self._key("send", body)
        settled = False
        while True:
            # A send that waits lets the broker see two agents that wait for each other. Where many wait, the answer is
            # pushed.
            waits = settled or not self._session.is_crowded
            sent = await self._durable("send", key, body=body, query={"wait": WAIT} if waits else None)
            if response := sent.get("response") or self._responses.get(sent["id"]):
                return Reply(response)
            settled = sent["delivery_state"] == "settled"
            if not waits and not settled:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news_of(sent["id"]).wait(), LOOK_SECONDS)
                if response := self._responses.get(sent["id"]):
                    return Reply(response)

    async def escalate(self, question: str, *, options: Sequence[str] = ()) -> str:
        """Asks a human and waits for the answer, a text of their own or one of the options.

        A question that nobody answers within `escalation_ms`, by default a week, ends the request: the handler is
        cancelled, or gets a `LastwordError` here if it learns of the question first.
        """
        body: Json = {"message": question, **({"options": list(options)} if options else {})}
        asked: EscalationView = await self._durable("escalate", self._key("escalate", body), body=body)
        answered = self._news_of(asked["id"])
        while asked["state"] == "open":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), LOOK_SECONDS)
            asked = await self._session.call("escalation", path=asked["id"], again=True)
        if asked["state"] != "answered":
            raise LastwordError(f"{asked['id']} has no answer: it is {asked['state']}")
        return asked.get("answer") or ""

    async def approve(self, tool: str, arguments: Any = None, *, reason: str | None = None) -> Approved:
        """Holds a call for a human's decision. Returns once it may be made, also with edited arguments.

        Raises `Rejected` if it may not.
        """
        body: Json = {"tool": tool, "arguments": {} if arguments is None else arguments}
        if reason is not None:
            body["reason"] = reason
        key = self._key("request_approval", body)
        approval: ApprovalView = await self._durable("request_approval", key, body=body)
        while approval["state"] == "pending":
            approval = await self._session.call("approval", path=approval["id"], query={"wait": WAIT}, again=True)
        if approval["state"] == "used":
            return Approved(approval, repeated=True)
        if approval["state"] != "approved":
            raise Rejected(approval)
        use: Json = {"tool": approval["tool"], "arguments": approval["arguments"]}
        while approval["state"] == "approved":
            try:
                turn = self.view["token"]
                approval = await self._session.call("use_approval", path=approval["id"], turn=turn, body=use)
            except Disconnected:
                # If it is used now, this run has used it.
                approval = await self._session.call("approval", path=approval["id"], again=True)
        if approval["state"] != "used":
            raise Rejected(approval)
        return Approved(approval, repeated=False)

    @contextlib.asynccontextmanager
    async def claim(self, resource: str, *, shared: bool = False) -> AsyncGenerator[ClaimView]:
        """Holds a resource while the block runs. `Refused` with the code `claim_held` names who has it."""
        body = {"resource": resource, "mode": "shared" if shared else "exclusive"}
        claim = await self._claimed(self._key("claim", body), body)
        try:
            yield claim
        finally:
            # The end of the turn releases it in any case.
            with contextlib.suppress(Refused):
                await self._session.call("release", path=claim["id"], again=True)

    async def _claimed(self, key: str, body: Json) -> ClaimView:
        """Claims under the key, and anew if an earlier run has released that claim (`unknown_request`): what the block
        does isn't all durable.
        """
        for again in itertools.count():
            try:
                return await self._durable("claim", f"{key}.{again}" if again else key, body=body)
            except Refused as refusal:
                if refusal.code != "unknown_request":
                    raise
        raise AssertionError

    async def step(self, name: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """Does `work` and keeps its result, which is JSON: a handler that runs again gets it, and doesn't do the work.

        A crash before the result is kept does the work again.
        """
        place = self.keys("step", {"name": name})
        key = f"{place}.{quote(name, safe='')}"
        for kept in self.view.get("steps", []):
            if kept["key"] == key:
                return cast(Result, kept["result"])
        self._new_at(place, f"the step {name}")
        result = await work()
        step: StepResult = {"key": key, "result": result}
        await self._session.call("progress", path=self.id, body={"step": step}, again=True)
        return result

    async def agents(self) -> list[AgentView]:
        """The agents of the workspace, with the actions that they offer; without humans and without this one."""
        page = await self._session.call("agents", again=True)
        return [one for one in page["items"] if one["kind"] == "agent" and one["name"] != self.message["to"]]

    async def progress(self, note: str) -> None:
        """Tells humans what the turn does now; renews its lease."""
        await self.renew(note)

    def spent(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        model: str | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Counts what a call of a model used. It is reported at once, and with the answer.

        `input_tokens` includes `cache_read_tokens` and `cache_write_tokens`.
        """
        usage = self._usage
        self.counted.set()
        usage["input_tokens"] = usage.get("input_tokens", 0) + input_tokens
        usage["output_tokens"] = usage.get("output_tokens", 0) + output_tokens
        if cache_read_tokens:
            usage["cache_read_tokens"] = (usage.get("cache_read_tokens") or 0) + cache_read_tokens
        if cache_write_tokens:
            usage["cache_write_tokens"] = (usage.get("cache_write_tokens") or 0) + cache_write_tokens
        if cost_usd is not None:
            usage["cost_usd"] = (usage.get("cost_usd") or 0.0) + cost_usd
        if model is not None:
            model = model[:MODEL_CHARACTERS_MAX].strip()
            of_model = self._models.setdefault(model, {"model": model, "tokens": 0})
            of_model["tokens"] += input_tokens + output_tokens
            if cost_usd is not None:
                of_model["cost_usd"] = (of_model.get("cost_usd") or 0.0) + cost_usd
            # The rest counts for no model.
            usage["models"] = list(self._models.values())[:MODELS_MAX]

    def usage(self) -> Usage | None:
        """What the turn used so far; `None` if nothing was counted."""
        used = self._usage.get("input_tokens") or self._usage.get("output_tokens") or self._usage.get("cost_usd")
        return self._usage if used else None

    def joined(self, message: StoredMessage) -> None:
        """Takes in an answer that the broker pushed into the turn."""
        if escalation := message.get("escalation"):
            self._news_of(escalation).set()
        elif request := message.get("in_reply_to"):
            self._responses[request] = message
            self._news_of(request).set()

    def _news_of(self, which: str) -> asyncio.Event:
        return self._answered.setdefault(which, asyncio.Event())

    async def renew(self, note: str = "") -> Any:
        """Renews the lease, and reports what was spent. The agent does so by itself."""
        body: Json = {"note": note}
        if usage := self.usage():
            body["usage"] = usage
        return await self._session.call("progress", path=self.id, body=body, again=True)

    def _key(self, call: str, body: Json) -> str:
        place = self.keys(call, body)
        self._new_at(place, call)
        return f"{self.message['id']}.{place}"

    def _new_at(self, place: str, what: str) -> None:
        """Checks that an earlier run had no other step at this place."""
        for kept in self.view.get("steps", []):
            if kept["key"].startswith(f"{place}."):
                raise self._changed(place, f"{what} instead of the step {unquote(kept['key'])}")

    def _changed(self, place: str, what: str) -> NotDeterministic:
        return NotDeterministic(
            f"place {place} of the handler for {self.message['id']} is another than in its first run ({what}): a "
            "handler makes the same calls in the same order when it runs again"
        )

    async def _durable(self, call: str, key: str, *, body: Json, query: Json | None = None) -> Any:
        try:
            return await self._session.call(call, key=key, turn=self.view["token"], body=body, query=query)
        except Refused as refusal:
            if refusal.code != "idempotency_conflict":
                raise
            raise self._changed(key.removeprefix(f"{self.message['id']}."), call) from refusal

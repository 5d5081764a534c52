"""The human's side: ask the team, see what waits for a decision, decide."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, Literal

from .agent import credentials
from .errors import Disconnected
from .session import CALLS_WAITING_MAX, Json, Session
from .turn import WAIT, Reply
from .wire import ApprovalView, EscalationView

Verdict = Literal["approve", "reject", "edit", "respond", "ignore"]


class Human:
    """A human of the workspace. `async with` opens the session."""

    def __init__(self, url: str, token: str) -> None:
        self._news = asyncio.Event()
        self._asking = asyncio.Semaphore(CALLS_WAITING_MAX)
        self._session = Session(url, token, watch=self._watch, pushed=lambda _: self._news.set())

    @classmethod
    def from_env(cls) -> Human:
        """The human whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`."""
        return cls(*credentials())

    async def __aenter__(self) -> Human:
        try:
            await self._session.open("human")
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._session.__aexit__(*failure)

    async def ask(
        self, to: str, text: str = "", *, ref: str | None = None, action: str | None = None, payload: Any = None
    ) -> Reply:
        """Asks an agent and waits for the answer. The request grants the work that it causes; without `ref` it is that
        of a new work item."""
        body: Json = {"type": "request", "to": to, "body": text}
        for name, value in {"ref": ref, "action": action, "payload": payload}.items():
            if value is not None:
                body[name] = value
        key = uuid.uuid4().hex
        async with self._asking:
            while True:
                sent = await self._session.call("send", key=key, body=body, query={"wait": WAIT})
                if response := sent.get("response"):
                    return Reply(response)

    async def watch(self) -> AsyncIterator[ApprovalView | EscalationView]:
        """Yields each call and each question that waits for a decision, once."""
        seen: set[str] = set()
        while True:
            self._news.clear()
            for waiting in [*await self.approvals(), *await self.questions()]:
                if waiting["id"] not in seen:
                    seen.add(waiting["id"])
                    yield waiting
            await self._news.wait()

    async def approvals(self) -> list[ApprovalView]:
        """The calls that wait for a decision."""
        page = await self._session.call("approvals", again=True)
        return [one for one in page["items"] if one["state"] == "pending"]

    async def questions(self) -> list[EscalationView]:
        """The questions that wait for an answer."""
        page = await self._session.call("escalations", again=True)
        return [one for one in page["items"] if one["state"] == "open"]

    async def decide(
        self, approval: ApprovalView, verdict: Verdict, *, comment: str | None = None, arguments: Any = None
    ) -> ApprovalView:
        """Decides on a held call; `edit` takes the arguments to use instead."""
        body: Json = {"decision": verdict, "digest": approval["digest"]}
        if comment is not None:
            body["comment"] = comment
        if arguments is not None:
            body["input"] = arguments
        return await self._settle("approve", body, "approval", approval["id"], "pending")

    async def answer(self, question: EscalationView, text: str) -> EscalationView:
        """Answers a question."""
        return await self._settle("answer", {"answer": text}, "escalation", question["id"], "open")

    async def lift(self, question: EscalationView, lift: str) -> EscalationView:
        """Answers a question about a limit by one of the lifts that it offers, such as `lift-1`."""
        return await self._settle("answer", {"lift": lift}, "escalation", question["id"], "open")

    async def stop(self, *, ref: str | None = None, agent: str | None = None, everything: bool = False) -> None:
        """Stops a conversation, an agent, or everything."""
        await self._control("stop", ref, agent, everything)

    async def pause(self, *, ref: str | None = None, agent: str | None = None, everything: bool = False) -> None:
        """Pauses a conversation, an agent, or everything."""
        await self._control("pause", ref, agent, everything)

    async def resume(self, *, ref: str | None = None, agent: str | None = None, everything: bool = False) -> None:
        """Resumes a conversation, an agent, or everything."""
        await self._control("resume", ref, agent, everything)

    async def grant(self, ref: str, **more: Any) -> Any:
        """Extends what a conversation may use, such as `rounds=2` or `cost_usd=1.5`."""
        return await self._session.call("grant", path=ref, body=more)

    async def _settle(self, call: str, body: Json, read: str, which: str, waits: str) -> Any:
        """Decides once. If the connection breaks, looks whether the decision was taken."""
        while True:
            try:
                return await self._session.call(call, path=which, body=body)
            except Disconnected:
                found = await self._session.call(read, path=which, again=True)
                if found["state"] != waits:
                    return found

    def _watch(self) -> Json:
        # What came while the session was broken has no event for it.
        self._news.set()
        return {"events": {}}

    async def _control(self, verb: str, ref: str | None, agent: str | None, everything: bool) -> None:
        if [ref is not None, agent is not None, everything].count(True) != 1:
            raise ValueError(f"{verb} takes one of `ref=`, `agent=` and `everything=True`")
        if ref is not None:
            await self._session.call(verb, path=ref, again=True)
        elif agent is not None:
            await self._session.call(f"{verb}_agent", path=agent, again=True)
        else:
            await self._session.call(f"{verb}_workspace", again=True)

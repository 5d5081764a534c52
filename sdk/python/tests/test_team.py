"""What a team does by the SDK, against the real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from lastword import Agent, Answer, Human, LastwordError, NotDeterministic, Refused, Rejected, Session, Turn
from lastword.testing import Broker

LATE = 60.0
"""Seconds that only a fault takes."""


@asynccontextmanager
async def serving(*agents: Agent) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(agent.serve()) for agent in agents]
    try:
        yield
    finally:
        for agent in agents:
            agent.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), LATE)


def human(broker: Broker) -> Human:
    return Human(broker.url, broker.operator)


async def test_two_agents_ask_each_other(lastword: Broker) -> None:
    planner = Agent(lastword.url, lastword.agent("planner"))
    tester = Agent(lastword.url, lastword.agent("tester", actions=["run_tests"]))

    @planner.on_request()
    async def plan(turn: Turn, body: str) -> str:
        tests = await turn.ask("#run_tests", "Run them", action="run_tests", payload={"branch": body, "n": 3})
        assert not tests.failed and tests.payload == {"passed": 3}
        return f"{tests.text} for {turn.sender}"

    @tester.on_request("run_tests")
    async def run(turn: Turn, branch: str, n: int, seed: int = 7) -> Answer:
        turn.spent(input_tokens=900, output_tokens=80, model="a-model")
        return Answer(f"{branch}: {n} passed with seed {seed}", {"passed": n})

    async with serving(planner, tester), human(lastword) as operator:
        reply = await asyncio.wait_for(operator.ask("planner", "main", ref="T-1"), LATE)
    assert reply.text == "main: 3 passed with seed 7 for operator"
    with lastword.human() as client:
        tree = client.call("GET", "/conversations/{}", "T-1")
    spent = [limit["current"] for limit in tree["grants"][0]["limits"] if "tokens" in limit["name"]]
    assert spent and spent[0] >= 980, tree["grants"]


async def test_a_human_decides_edits_and_rejects(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))
    made: list[object] = []

    @agent.on_request()
    async def work(turn: Turn) -> str:
        made.append((await turn.approve("git", {"args": ["push"]}, reason="reviewed")).arguments)
        made.append((await turn.approve("git", {"args": ["push", "--force"]})).arguments)
        with pytest.raises(Rejected) as rejected:
            await turn.approve("rm", {"path": "/"})
        assert rejected.value.comment == "never" and "Rejected by the human operator" in rejected.value.model_hint()
        region = await turn.escalate("Where?", options=["eu", "us"])
        async with turn.claim("repo:src/auth/*") as claim:
            assert claim["resource"] == "repo:src/auth/*"
        return f"deployed to {region}"

    async with serving(agent), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "Deploy", ref="T-1"))
        verdicts = iter(["approve", "edit", "reject"])
        async for waiting in operator.watch():
            if "tool" not in waiting:
                await operator.answer(waiting, "eu")
                break
            verdict = next(verdicts)
            if verdict == "approve":
                await operator.decide(waiting, "approve")
            elif verdict == "edit":
                await operator.decide(waiting, "edit", arguments={"args": ["push"]})
            else:
                await operator.decide(waiting, "reject", comment="never")
        reply = await asyncio.wait_for(asked, LATE)
    assert reply.text == "deployed to eu"
    assert made == [{"args": ["push"]}, {"args": ["push"]}]


def test_mistakes_of_a_start_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("http://127.0.0.1:1", "token")
    agent.on_request()(_nothing)
    with pytest.raises(ValueError, match="has a handler"):
        agent.on_request()
    with pytest.raises(TypeError, match=r"@agent.on_request\(\)"):
        agent.on_request(_nothing)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LastwordError, match="http://"):
        Agent("127.0.0.1:1", "token")
    monkeypatch.delenv("LASTWORD_TOKEN", raising=False)
    for file, told in [(tmp_path / "none", "can't be read"), (tmp_path / "empty", "is empty")]:
        (tmp_path / "empty").write_text("")
        monkeypatch.setenv("LASTWORD_TOKEN_FILE", str(file))
        with pytest.raises(LastwordError, match=told):
            Agent.from_env()


async def _nothing(turn: Turn) -> None: ...


async def test_an_agent_logs_what_finds_no_handler_or_no_answer(
    lastword: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))
    agent.on_request("nothing")(_nothing)
    async with serving(agent), human(lastword) as operator:
        await operator.ask("kilo", "Go", ref="T-1", action="nothing")
        await operator.ask("kilo", "Go", ref="T-2")
    assert "returned nothing" in caplog.text and "no handler" in caplog.text


async def test_a_question_that_expires_ends_the_request_and_its_handler() -> None:
    """The turn's end cancels the handler, or the question's end reaches it first: the two race on a slow machine."""
    with Broker("[limits]\nescalation_ms = 1000\n") as lastword:
        agent = Agent(lastword.url, lastword.agent("kilo"))
        ended: list[bool] = []

        @agent.on_request()
        async def work(turn: Turn) -> str:
            try:
                return await turn.escalate("Go on?")
            except (asyncio.CancelledError, LastwordError):
                ended.append(True)
                raise

        async with serving(agent), human(lastword) as operator:
            reply = await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)
        assert (reply.status, ended) == ("timed_out", [True])


async def test_a_question_without_an_answer_has_no_empty_one() -> None:
    class Expired:
        async def call(self, *_: object, **__: object) -> Any:
            return {"id": "esc-1", "state": "expired"}

    turn = Turn(cast(Session, Expired()), cast(Any, {"token": "t"}), cast(Any, {"id": "msg-1"}))
    with pytest.raises(LastwordError, match="esc-1 has no answer: it is expired"):
        await turn.escalate("Go on?")


async def test_a_handler_that_runs_again_gets_what_it_had(lastword: Broker) -> None:
    """The first run ends without an answer behind its second call; the broker is killed in between."""
    token = lastword.agent("kilo")
    other = Agent(lastword.url, lastword.agent("other"))
    first, second = Agent(lastword.url, token), Agent(lastword.url, token)
    served: list[str] = []
    drawn: list[str] = []
    reached = asyncio.Event()

    @other.on_request()
    async def count(turn: Turn, body: str) -> str:
        served.append(body)
        return f"{body} done"

    async def draw() -> list[str]:
        drawn.append("drawn")
        return drawn

    @first.on_request()
    async def breaks(turn: Turn) -> None:
        assert await turn.step("draw a card", draw) == ["drawn"]
        await turn.ask("other", "one")
        await turn.ask("other", "two")
        reached.set()
        await asyncio.sleep(LATE)

    @second.on_request()
    async def works(turn: Turn) -> str:
        assert await turn.step("draw a card", draw) == ["drawn"]
        one = await turn.ask("other", "one")
        two = await turn.ask("other", "two")
        three = await turn.ask("other", "three")
        return ", ".join([one.text, two.text, three.text])

    async with serving(other), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "go", ref="T-1"))
        crashing = asyncio.create_task(first.serve(grace=0))
        await asyncio.wait_for(reached.wait(), LATE)
        lastword.kill()
        crashing.cancel()
        await asyncio.gather(crashing, return_exceptions=True)
        lastword.start()
        async with serving(second):
            reply = await asyncio.wait_for(asked, LATE)
    assert reply.text == "one done, two done, three done"
    assert served == ["one", "two", "three"]
    assert drawn == ["drawn"], "the step is done once"


async def test_a_break_is_logged_and_its_end(lastword: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lastword")
    async with human(lastword) as operator:
        assert "the session of operator at" in caplog.text
        lastword.kill()
        while "is tried again" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        lastword.start()
        await operator.approvals()
    assert caplog.text.count("is tried again") == caplog.text.count("is open again") == 1


async def test_another_way_under_the_same_key_is_told_by_name(lastword: Broker) -> None:
    token = lastword.agent("kilo")
    other = Agent(lastword.url, lastword.agent("other"))
    first, second = Agent(lastword.url, token), Agent(lastword.url, token)
    reached, told = asyncio.Event(), asyncio.Event()

    @other.on_request()
    async def serve(turn: Turn) -> str:
        return "done"

    async def done() -> str:
        return "done"

    @first.on_request()
    async def one_way(turn: Turn) -> None:
        await turn.ask("other", "one")
        await turn.step("count", done)
        reached.set()
        await asyncio.sleep(LATE)

    @second.on_request()
    async def another_way(turn: Turn) -> str:
        with pytest.raises(NotDeterministic, match=r"place 1 of the handler for msg-\d+ is another .* \(send\)"):
            await turn.ask("other", "something else")
        with pytest.raises(NotDeterministic, match=r"place 2 .* \(the step draw instead of the step 2\.count\)"):
            await turn.step("draw", done)
        told.set()
        return "noticed"

    async with serving(other), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "go", ref="T-1"))
        crashing = asyncio.create_task(first.serve(grace=0))
        await asyncio.wait_for(reached.wait(), LATE)
        crashing.cancel()
        await asyncio.gather(crashing, return_exceptions=True)
        async with serving(second):
            assert (await asyncio.wait_for(asked, LATE)).text == "noticed"
    assert told.is_set()


async def test_refusals_are_typed_and_wrong_requests_are_answered(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))

    @agent.on_request("add")
    async def add(turn: Turn, a: int, b: int) -> int:
        with pytest.raises(Refused) as refused:
            await turn.ask("nobody", "hello")
        assert refused.value.rule and refused.value.hint in refused.value.model_hint()
        return a + b

    @agent.on_request("fail")
    async def fail(turn: Turn) -> None:
        raise ValueError("as it is meant")

    async with serving(agent), human(lastword) as operator:
        summed = await operator.ask("kilo", ref="T-1", action="add", payload={"a": 1, "b": 2})
        assert summed.payload == 3
        lacking = await operator.ask("kilo", ref="T-2", action="add", payload={"a": 1})
        assert lacking.status == "failed" and "`b`" in str(lacking.message.get("reason"))
        failed = await operator.ask("kilo", ref="T-3", action="fail")
        assert failed.failed and "as it is meant" in str(failed.message.get("reason"))
        unknown = await operator.ask("kilo", "?", ref="T-4")
        assert unknown.failed
        with pytest.raises(Refused):
            await operator.ask("kilo", ref="T-5")


async def test_a_wrong_token_is_refused_at_once(lastword: Broker) -> None:
    with pytest.raises(Refused) as refused:
        async with Human(lastword.url, "lw_wrong"):
            pass
    assert refused.value.code == "unauthenticated"


async def test_a_stop_cancels_the_handler_at_once(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))
    began, cancelled = asyncio.Event(), asyncio.Event()

    @agent.on_request()
    async def work(turn: Turn) -> None:
        began.set()
        try:
            await asyncio.sleep(LATE)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(agent), human(lastword) as operator:
        stops: list[dict[str, Any]] = [{"ref": "T-0"}, {"agent": "kilo"}, {"everything": True}]
        for number, stop in enumerate(stops):
            began.clear()
            cancelled.clear()
            asked = asyncio.create_task(operator.ask("kilo", "go", ref=f"T-{number}"))
            await asyncio.wait_for(began.wait(), LATE)
            await operator.stop(**stop)
            # A renewal would tell it within a minute.
            await asyncio.wait_for(cancelled.wait(), 5)
            assert (await asyncio.wait_for(asked, LATE)).failed
            await operator.resume(agent="kilo")
            await operator.resume(everything=True)


async def test_an_edited_call_keeps_its_numbers_as_they_were_written(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))

    @agent.on_request()
    async def pay(turn: Turn) -> Answer:
        call = await turn.approve("pay", {"amount": 2, "rates": [1.5]})
        return Answer("paid", call.arguments)

    async with serving(agent), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "Pay", ref="T-1"))
        async for waiting in operator.watch():
            assert "tool" in waiting
            edited = '{"amount": 1.50, "rates": [1e3, 2.0, 7]}'
            decision = f'{{"decision": "edit", "digest": "{waiting["digest"]}", "input": {edited}}}'
            headers = {"Authorization": f"Bearer {lastword.operator}", "Content-Type": "application/json"}
            address = f"{lastword.url}/v1/approvals/{waiting['id']}/decision"
            assert httpx2.post(address, content=decision, headers=headers).is_success
            break
        reply = await asyncio.wait_for(asked, LATE)
    assert reply.payload == {"amount": 1.5, "rates": [1000.0, 2.0, 7]}, reply.message


async def test_an_answer_that_is_too_long_ends_the_turn(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))

    @agent.on_request()
    async def talk(turn: Turn, body: str) -> str:
        return "a" * int(body)

    async with serving(agent), human(lastword) as operator:
        for number, length in enumerate([300_000, 700_000]):
            reply = await asyncio.wait_for(operator.ask("kilo", str(length), ref=f"T-{number}"), LATE)
            assert reply.status == "failed" and reply.message.get("reason"), reply.message
        assert (await asyncio.wait_for(operator.ask("kilo", "3", ref="T-9"), LATE)).text == "aaa"


async def test_an_agent_whose_token_ends_is_told(lastword: Broker) -> None:
    agent = Agent(lastword.url, lastword.agent("kilo"))
    serve = asyncio.create_task(agent.serve())
    with lastword.human() as client:
        while not client.call("GET", "/agents/{}", "kilo")["connected"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        client.call("POST", "/agents/{}/token", "kilo", body={})
        # What would be pushed into the session ends it; it would end by itself within half a minute.
        client.call("POST", "/messages", body={"type": "request", "to": "kilo", "ref": "T-1", "body": "hello"})
    with pytest.raises(LastwordError):
        await asyncio.wait_for(serve, LATE)


async def test_a_scripted_agent_answers_in_turn(lastword: Broker) -> None:
    script = ["Red.", Answer("Green.", {"passed": 3}), ValueError("no more disk")]
    async with lastword.scripted("tester", script) as asked, human(lastword) as operator:
        first = await operator.ask("tester", "one", ref="T-1")
        second = await operator.ask("tester", "two", ref="T-2")
        failed = [await operator.ask("tester", "more", ref=f"T-{number}") for number in (3, 4)]
    assert (first.text, second.text, second.payload) == ("Red.", "Green.", {"passed": 3})
    assert ["no more disk" in str(failed[0].message.get("reason")), failed[1].failed] == [True, True]
    assert [message["body"] for message in asked] == ["one", "two", "more", "more"]


async def test_an_agent_without_a_server_stops_at_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("http://127.0.0.1:9", "lw_any")
    serve = asyncio.create_task(agent.serve())
    while not caplog.records:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert "no session at ws://127.0.0.1:9/v1/session, which is tried again" in caplog.text
    agent.stop()
    await asyncio.wait_for(serve, 5)


async def test_a_token_of_the_wrong_kind_is_told_by_name(lastword: Broker) -> None:
    with pytest.raises(LastwordError, match="that of operator, a token of a human: `lastword agent add"):
        await asyncio.wait_for(Agent(lastword.url, lastword.operator).serve(), LATE)
    with pytest.raises(LastwordError, match="that of kilo, a token of an agent"):
        async with Human(lastword.url, lastword.agent("kilo")):
            pass


async def test_a_stop_of_nothing_is_refused(lastword: Broker) -> None:
    async with human(lastword) as operator:
        with pytest.raises(ValueError, match="everything=True"):
            await operator.stop()

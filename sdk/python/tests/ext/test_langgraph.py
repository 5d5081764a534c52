"""Interrupts, and what a checkpoint changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from rig_langgraph import agent_graph
from scripted import LATE, Model, breaking, deciding, human, serving

from lastword import Agent, LastwordError
from lastword.ext.langgraph import current_turn, serve
from lastword.testing import Broker


class State(TypedDict, total=False):
    said: str


async def asks_twice_in_the_same_words(state: State) -> State:
    """A node that LangGraph runs three times, from its start."""
    counted = await current_turn().ask("other", "one")
    where = interrupt({"question": "Where?", "options": ["eu", "us"]})
    return {"said": " ".join([counted.text, where, interrupt("Sure?"), interrupt("Sure?")])}


def graph(**options: Any) -> Any:
    made = StateGraph(State)
    made.add_node("ask", asks_twice_in_the_same_words)
    made.add_edge(START, "ask")
    made.add_edge("ask", END)
    return made.compile(**options)


def serve_state(agent: Agent, served: Any) -> None:
    serve(agent, served, given=lambda turn: {}, answer=lambda state: state["said"])


def counting(lastword: Broker) -> tuple[Agent, list[str]]:
    agent, served = Agent(lastword.url, lastword.agent("other")), list[str]()

    @agent.on_request()
    async def serve(body: Any) -> str:  # pyright: ignore[reportUnusedFunction]
        served.append(body.text)
        return f"{len(served)}"

    return agent, served


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        yield saver


async def test_an_interrupt_is_a_question_and_a_node_that_runs_again_asks_nothing_twice(lastword: Broker) -> None:
    agent, (other, served) = Agent(lastword.url, lastword.agent("kilo")), counting(lastword)
    serve_state(agent, graph())
    async with serving(agent, other), human(lastword) as operator:
        answers = iter(["eu", "yes", "no"])

        async def decide(question: Any) -> None:
            assert question["options"] == (["eu", "us"] if question["message"] == "Where?" else [])
            await operator.answer(question, next(answers))

        async with deciding(operator, decide):
            assert (await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)).text == "1 eu yes no"
    assert served == ["one"]


@pytest.mark.parametrize("kept", ["on disk", "in memory", "not"])
async def test_a_question_that_waits_over_a_crash_is_asked_once(
    lastword: Broker, saver: AsyncSqliteSaver, kept: str
) -> None:
    token, (other, served) = lastword.agent("kilo"), counting(lastword)
    first, second = Agent(lastword.url, token), Agent(lastword.url, token)
    for agent in (first, second):
        savers = {"on disk": saver, "in memory": InMemorySaver(), "not": None}
        serve_state(agent, graph(checkpointer=savers[kept]))
    questions: list[str] = []
    async with serving(other), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "Go", ref="T-1"))
        watching = operator.watch()
        async with breaking(first):
            for answer in ("eu", "yes", None):
                question: Any = await anext(watching)
                questions.append(question["id"])
                if answer:
                    await operator.answer(question, answer)
            lastword.kill()
        lastword.start()
        async with serving(second):
            await operator.answer(question, "no")
            assert (await asyncio.wait_for(asked, LATE)).text == "1 eu yes no"
        assert await operator.questions() == [] and len(set(questions)) == 3
    assert served == ["one"]


async def test_a_run_goes_on_at_its_checkpoint(lastword: Broker, saver: AsyncSqliteSaver) -> None:
    token, reached, made = lastword.agent("kilo"), asyncio.Event(), list[str]()
    first, second = Agent(lastword.url, token), Agent(lastword.url, token)
    other, served = counting(lastword)

    async def push(branch: str) -> str:
        """Pushes a branch."""
        made.append(branch)
        return f"pushed {branch}"

    ask, hold = ("ask_agent", {"to": "other", "text": "again"}), ("push", {"branch": "main"})
    before = Model([ask], [hold], reached)
    serve(first, agent_graph(before, held=[push], checkpointer=saver))
    # The same words as before: another call, as the run is another part of the task.
    after = Model([ask], "done")
    serve(second, agent_graph(after, held=[push], checkpointer=saver))
    async with serving(other), human(lastword) as operator:
        asked = asyncio.create_task(operator.ask("kilo", "Go", ref="T-1"))
        async with breaking(first):
            held: Any = await anext(operator.watch())
            await operator.decide(held, "approve")
            await asyncio.wait_for(reached.wait(), LATE)
        async with serving(second):
            assert (await asyncio.wait_for(asked, LATE)).text == "done"
    assert served == ["again", "again"] and made == ["main"]
    assert "pushed main" in after.seen[0] and len(after.seen) == 2


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_a_decision_that_the_middleware_does_not_take_is_told_the_model(lastword: Broker, mode: Any) -> None:
    agent, made = Agent(lastword.url, lastword.agent("kilo")), list[str]()

    async def push(branch: str) -> str:
        """Pushes a branch."""
        made.append(branch)
        return f"pushed {branch}"

    async def ask_user(what: str) -> str:
        """Asks the user."""
        raise NotImplementedError

    asking: Any = {"push": {"allowed_decisions": ["approve", "reject"]}, "ask_user": {"allowed_decisions": ["respond"]}}
    calls = [
        ("push", {"branch": "a"}),
        ("push", {"branch": "b"}),
        ("push", {"branch": "c"}),
        ("ask_user", {"what": "?"}),
    ]
    model = Model(calls, "done")
    holding = HumanInTheLoopMiddleware[Any, Any, Any](asking, interrupt_mode=mode)
    serve(agent, agent_graph(model, plain=[push, ask_user], middleware=[holding]))
    async with serving(agent), human(lastword) as operator:

        async def decide(waiting: Any) -> None:
            match waiting.get("arguments"):
                case {"branch": "a"}:
                    await operator.decide(waiting, "edit", arguments={"branch": "edited"})
                case {"branch": "b"}:
                    await operator.decide(waiting, "respond", comment="wait")
                case None:
                    await operator.answer(waiting, "a human's\nanswer")
                case _:
                    await operator.decide(waiting, "approve")

        async with deciding(operator, decide):
            assert (await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)).text == "done"
    assert made == ["c"]
    assert '{"branch": "edited"}' in model.seen[1] and "with an instruction" in model.seen[1]
    assert "The answer of a human:" in model.seen[1]


async def test_a_question_that_is_refused_fails_the_task(lastword: Broker) -> None:
    async def ask(state: State) -> State:
        return {"said": interrupt("?" * 300_000)}

    made = StateGraph(State)
    made.add_node("ask", ask)
    made.add_edge(START, "ask")
    agent = Agent(lastword.url, lastword.agent("kilo"))
    serve_state(agent, made.compile())  # pyright: ignore[reportUnknownMemberType]
    async with serving(agent), human(lastword) as operator:
        reply = await asyncio.wait_for(operator.ask("kilo", "Go", ref="T-1"), LATE)
    assert reply.failed and str(reply.message.get("reason")).startswith("Refused (")


def test_a_breakpoint_is_refused(lastword: Broker) -> None:
    with pytest.raises(LastwordError, match="interrupt"):
        serve(Agent(lastword.url, "lw_none"), graph(interrupt_before=["ask"]))

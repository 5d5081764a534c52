"""An agent elsewhere, made with the SDK for Python: python agent.py. Its first line says where it is."""

import asyncio
import json
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

# What was received, and the gate of the tasks that wait for it.
SEEN: list[dict] = []
GATES: dict[str, asyncio.Event] = {}


class Scripted(AgentExecutor):
    """Does what the first word of a message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        SEEN.append({"id": context.message.message_id, "task": context.task_id, "text": text})
        goes_on = context.current_task is not None
        if not goes_on:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        said = lambda words: new_text_message(words, context_id=context.context_id, task_id=context.task_id)
        if goes_on:
            await task.add_artifact([Part(text=f"You said: {text}")], name="answer")
            await task.complete()
        elif text.startswith("chunks"):
            for number, chunk in enumerate(["one ", "two ", "three"]):
                await task.add_artifact([Part(text=chunk)], "z", append=number > 0, last_chunk=number == 2)
            await task.add_artifact([Part(text="another")], "a")
            await task.complete()
        elif text.startswith("ask"):
            await task.requires_input(said("Which one?"))
        elif text.startswith("fail"):
            await task.failed(said("It broke."))
        elif text.startswith("wait"):
            await task.start_work(said("Begun."))
            await GATES.setdefault(text, asyncio.Event()).wait()
            await task.add_artifact([Part(text="Waited.")], name="answer")
            await task.complete()
        else:
            await task.add_artifact([Part(text=f"Done: {text}")], name="answer")
            await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        SEEN.append({"cancelled": context.task_id})
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def agent(base: str, path: str, streaming: bool) -> list[Route]:
    card = AgentCard(
        name="scripted",
        description="Does what it is told.",
        version="1",
        supported_interfaces=[AgentInterface(url=base + path, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="all", name="All", description="Everything.", tags=["all"])],
    )
    handler = DefaultRequestHandler(Scripted(), InMemoryTaskStore(), card)
    cards = create_agent_card_routes(card, card_url=f"{path}.well-known/agent-card.json")
    return [*cards, *create_jsonrpc_routes(handler, path)]


async def seen(request: Request) -> Response:
    return JSONResponse(SEEN)


async def go(request: Request) -> Response:
    GATES.setdefault((await request.body()).decode(), asyncio.Event()).set()
    return Response(status_code=204)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    routes = [Route("/seen", seen), Route("/go", go, methods=["POST"])]
    routes += [*agent(base, "/plain/", False), *agent(base, "/", True)]
    print(json.dumps({"listening": base}), flush=True)
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning")).run([listener])


main()

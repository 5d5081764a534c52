"""The SDKs as clients of an agent that a workspace publishes: Python's by both bindings here, JavaScript's in client.mjs."""

import asyncio
import json

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWK
from world import WORK, Checks, Receiver, World, surroundings

RPC, REST = "JSONRPC", "HTTP+JSON"


def state(found) -> str:
    """The state that an event or a task tells of."""
    place = found
    for name in ("task", "status_update"):
        if name in {field.name for field in found.DESCRIPTOR.fields} and found.HasField(name):
            place = getattr(found, name)
    if not hasattr(place, "status"):
        return "ARTIFACT"
    return TaskState.Name(place.status.state).removeprefix("TASK_STATE_")


class Caller:
    """A client of one binding."""

    def __init__(self, world: World, name: str, binding: str, agent: str = "coder"):
        self.world, self.name, self.binding, self.agent = world, name, binding, agent
        self.answers: list[dict] = []
        self.sent = 0

    async def __aenter__(self):
        async def keep(response: httpx.Response) -> None:
            if "json" in response.headers.get("content-type", ""):
                await response.aread()
                self.answers.append(response.json())

        headers = {"Authorization": f"Bearer {self.world.tokens[self.name]}"}
        self.http = httpx.AsyncClient(headers=headers, timeout=120, event_hooks={"response": [keep]})
        self.card = await A2ACardResolver(self.http, self.world.address(self.agent)).get_agent_card()
        self.waits, self.streams = self.client(streaming=False), self.client(streaming=True)
        return self

    async def __aexit__(self, *failure):
        await self.http.aclose()

    def client(self, streaming: bool):
        config = ClientConfig(
            streaming=streaming, httpx_client=self.http, supported_protocol_bindings=[self.binding]
        )
        return ClientFactory(config).create(self.card)

    def request(self, text: str, *parts: Part, now=False, **message) -> SendMessageRequest:
        self.sent += 1
        message.setdefault("message_id", f"{self.name}-{self.sent}")
        said = Message(role=Role.ROLE_USER, parts=[Part(text=text), *parts], **message)
        return SendMessageRequest(message=said, configuration=SendMessageConfiguration(return_immediately=now))

    async def send(self, text: str, *parts: Part, now=False, **message):
        """Sends without a stream; returns the task."""
        sent = self.waits.send_message(self.request(text, *parts, now=now, **message))
        return [event async for event in sent][0].task

    def stream(self, text: str):
        return self.streams.send_message(self.request(text))

    async def get(self, task: str, **more):
        return await self.waits.get_task(GetTaskRequest(id=task, **more))

    def subscribe(self, task: str):
        return self.streams.subscribe(SubscribeToTaskRequest(id=task))


async def refused(awaited, kind: type) -> Exception:
    try:
        await awaited
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def rest_of(stream) -> list:
    return [event async for event in stream]


async def card(world: World, caller: Caller, check: Checks) -> None:
    without = await A2ACardResolver(caller.http, world.address().rstrip("/")).get_agent_card()
    check.same(without, caller.card, "this SDK finds the card with and without the slash at the end")
    check.same({one.url for one in caller.card.supported_interfaces}, {world.address()}, "addresses")
    keys = (await world.http.get(f"{world.url}/a2a/.lastword/jwks.json")).json()["keys"]

    def key(kid: str | None, jku: str | None) -> PyJWK:
        assert jku == f"{world.url}/a2a/.lastword/jwks.json"
        return next(PyJWK(one) for one in keys if one["kid"] == kid)

    verify = create_signature_verifier(key, ["EdDSA"])
    await A2ACardResolver(caller.http, world.address()).get_agent_card(signature_verifier=verify)
    check.holds(True, "the card's signature is valid")
    forged = type(caller.card)()
    forged.CopyFrom(caller.card)
    forged.supported_interfaces[0].url = "http://elsewhere.example/"
    check.holds(await refused(asyncio.to_thread(verify, forged), InvalidSignaturesError), "a changed card is not signed")
    check.same(list(caller.card.skills[0].tags), ["review"], "the groups aren't public")
    extended = await caller.client(False).get_extended_agent_card(
        GetExtendedAgentCardRequest(), signature_verifier=verify
    )
    check.same(list(extended.skills[0].tags), ["review", "core"], "the extended card has the groups, and is signed")


async def sends(world: World, caller: Caller, check: Checks) -> None:
    sending = asyncio.create_task(caller.send("Do it.", Part(data={"struct_value": {"n": 1}})))
    delivery = await world.take()
    message = delivery["message"]
    check.same((message["body"], message["payload"]), ("Do it.", {"n": 1}), "the request")
    await world.finish(delivery, answer="Done.", payload={"ok": True})
    done = await sending
    check.same(state(done), "COMPLETED", "a send that waits")
    check.same([part.text for part in done.artifacts[0].parts], ["Done.", ""], "the answer")
    check.same(done.artifacts[0].parts[1].data.struct_value["ok"], True, "the payload")
    sending = asyncio.create_task(caller.send("Draw it."))
    file = {"url": "https://files.example/plan.pdf", "filename": "plan.pdf", "mediaType": "application/pdf"}
    await world.finish(await world.take(), answer="Drawn.", payload={"a2a": {"files": [file]}})
    drawn = await sending
    found = drawn.artifacts[0].parts[1]
    check.same((found.url, found.filename, found.media_type), tuple(file.values()), "a file of the answer")
    sending = asyncio.create_task(rest_of(caller.waits.send_message(caller.request("Which port?"))))
    await world.finish(await world.take(), answer="8123", payload={"a2a": {"message": True}})
    short = (await sending)[0].message
    check.same((short.parts[0].text, short.role), ("8123", Role.ROLE_AGENT), "an answer without a task")
    request = caller.request("Again.", now=True)
    first, again = [(await rest_of(caller.waits.send_message(request)))[0].task for _ in range(2)]
    check.same((state(first), again.id), ("SUBMITTED", first.id), "a repeated send is the same task")
    check.same(first.history[0].parts[0].text, "Again.", "the history")
    known = await caller.get(first.id, history_length=0)
    check.same((known.id, len(known.history)), (first.id, 0), "a task without its history")
    cancelled = await caller.waits.cancel_task(CancelTaskRequest(id=first.id))
    check.same(state(cancelled), "CANCELED", "cancel")
    await refused(caller.waits.cancel_task(CancelTaskRequest(id=first.id)), TaskNotCancelableError)
    check.holds(True, "an ended task is not cancelable")
    further = await caller.send("More.", now=True, context_id=done.context_id)
    check.same(further.context_id, done.context_id, "the context goes on")
    working = await world.take()
    check.same(state(await caller.get(further.id)), "WORKING", "taken")
    await caller.waits.cancel_task(CancelTaskRequest(id=further.id))
    check.same(state(await caller.get(further.id)), "CANCELED", "cancelled while it was worked on")
    lost = await world.call("coder", "POST", f"/v1/turns/{working['turn']['id']}/finish", {"answer": "Late."}, refused=True)
    check.same(state(await caller.get(further.id)), "CANCELED", f"an answer is too late: {lost}")
    listed = await caller.waits.list_tasks(ListTasksRequest(context_id=done.context_id, include_artifacts=True))
    check.same([one.id for one in listed.tasks], [further.id, done.id], "the tasks of a context, newest first")
    check.same(listed.tasks[1].artifacts[0].parts[0].text, "Done.", "with their artifacts")
    completed = await caller.waits.list_tasks(ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED, page_size=1))
    check.same([one.id for one in completed.tasks], [short.task_id], "the tasks of a state, newest first")
    pages, token = [], ""
    while True:
        page = await caller.waits.list_tasks(ListTasksRequest(page_size=2, page_token=token))
        pages += [one.id for one in page.tasks]
        token = page.next_page_token
        if not token:
            break
    made = [done.id, drawn.id, short.task_id, first.id, further.id]
    check.same(sorted(pages), sorted(made), "all pages")


async def streams(world: World, caller: Caller, check: Checks) -> None:
    stream = caller.stream("Deploy it.")
    begun = await anext(stream)
    task = begun.task.id
    check.same(state(begun), "SUBMITTED", "a stream begins with the task")
    other = caller.subscribe(task)
    check.same((await anext(other)).task.id, task, "so does another one")
    delivery = await world.take()
    await world.note(delivery, "half of it")
    check.same([state(await anext(stream)) for _ in range(2)], ["WORKING", "WORKING"], "events")
    # The connection breaks; the other stream is undisturbed.
    await stream.aclose()
    held = await world.hold(delivery, "deploy")
    again = caller.subscribe(task)
    check.same(state(await anext(again)), "AUTH_REQUIRED", "a new stream begins where the task is")
    await world.decide(held)
    check.same(state(await anext(again)), "WORKING", "the operator's decision, while it streams")
    await world.finish(delivery, answer="Deployed.")
    ends = ["ARTIFACT", "COMPLETED"]
    left = await rest_of(again)
    check.same([state(one) for one in left], ends, "the end")
    whole = await rest_of(other)
    expected = ["WORKING", "WORKING", "AUTH_REQUIRED", "WORKING", *ends]
    check.same([state(one) for one in whole], expected, "what the undisturbed stream saw")
    check.same(whole[-2:], left, "the same events")
    check.same(whole[1].status_update.status.message.parts[0].text, "half of it", "a note")
    check.same(whole[4].artifact_update.artifact.parts[0].text, "Deployed.", "the answer")
    check.same(whole[-1].status_update.status, (await caller.get(task)).status, "the task is as its last event")
    await refused(rest_of(caller.subscribe(task)), UnsupportedOperationError)
    check.holds(True, "nothing follows a task that has ended")
    late = caller.send("And now?", task_id=task)
    await refused(late, UnsupportedOperationError)
    check.holds(True, "a task that has ended takes no message")


async def questions(world: World, caller: Caller, check: Checks) -> None:
    sending = asyncio.create_task(caller.send("Deploy it."))
    await world.ask(await world.take(), "Which one?")
    asked = await sending
    check.same(state(asked), "INPUT_REQUIRED", "a send that waits returns with the question")
    check.same(asked.status.message.parts[0].text, "Which one?", "the question")
    sending = asyncio.create_task(caller.send("The second.", task_id=asked.id, context_id=asked.context_id))
    delivery = await world.take()
    check.same(delivery["message"]["body"], "The second.", "the caller's answer")
    await world.finish(delivery, answer="Deployed the second.")
    done = await sending
    check.same((done.id, state(done)), (asked.id, "COMPLETED"), "the same task ends")
    check.same(done.artifacts[0].parts[0].text, "Deployed the second.", "its answer")
    stream = caller.stream("Break it.")
    check.same(state(await anext(stream)), "SUBMITTED", "one that fails")
    await world.finish(await world.take(), answer="", status="failed", reason="It broke.")
    last = (await rest_of(stream))[-1]
    said = last.status_update.status.message.parts[0].text
    check.same((state(last), said.splitlines()[0]), ("FAILED", "It broke."), "it says why")
    stream = caller.stream("Not yours.")
    await anext(stream)
    await world.finish(await world.take(), answer="", status="rejected", reason="Not mine.")
    check.same(state((await rest_of(stream))[-1]), "REJECTED", "one that is declined")


async def pushes(world: World, caller: Caller, check: Checks) -> None:
    async with Receiver() as receiver:
        task = (await caller.send("Do it.", now=True)).id
        wanted = TaskPushNotificationConfig(task_id=task, id="mine", url=receiver.url, token="a token")
        wanted.authentication.scheme, wanted.authentication.credentials = "Bearer", "a secret"
        made = await caller.waits.create_task_push_notification_config(wanted)
        check.same(made, wanted, "a configuration")
        named = GetTaskPushNotificationConfigRequest(task_id=task, id="mine")
        check.same(await caller.waits.get_task_push_notification_config(named), wanted, "the same again")
        all_of = ListTaskPushNotificationConfigsRequest(task_id=task)
        listed = await caller.waits.list_task_push_notification_configs(all_of)
        check.same(list(listed.configs), [wanted], "the list")
        await world.finish(await world.take(), answer="Done.")
        posts = [await receiver.take() for _ in range(4)]
        kinds = [next(iter(body)) for _, body in posts]
        check.same(kinds, ["task", "statusUpdate", "artifactUpdate", "statusUpdate"], "what was posted")
        check.same(posts[3][1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "the end")
        headers = posts[0][0]
        found = [headers[name] for name in ("authorization", "x-a2a-notification-token", "content-type")]
        check.same(found, ["Bearer a secret", "a token", "application/a2a+json"], "the headers")
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="mine")
        await caller.waits.delete_task_push_notification_config(gone)
        listed = await caller.waits.list_task_push_notification_configs(all_of)
        check.same(list(listed.configs), [], "deleted")


async def refusals(world: World, caller: Caller, check: Checks) -> None:
    await refused(caller.get("a2a-unknown"), TaskNotFoundError)
    file = Part(url="https://example.com/file", filename="file")
    await refused(caller.send("Read it.", file), ContentTypeNotSupportedError)
    await refused(caller.send("Read it.", Part(raw=b"bytes")), ContentTypeNotSupportedError)
    check.count += 3
    for version in ("0.3", "2.0", ""):
        context = ClientCallContext(service_parameters={"A2A-Version": version})
        asked = caller.waits.get_task(GetTaskRequest(id="a2a-unknown"), context=context)
        check.holds(await refused(asked, VersionNotSupportedError), version)


async def broker_refusals(world: World, caller: Caller, check: Checks) -> None:
    """Nobody takes what `quiet` is asked, so the allowance of its caller ends."""
    for _ in range(world.limits["roots_per_hour_max"]):
        await caller.send("Do it.", now=True)
    before = (await caller.waits.list_tasks(ListTasksRequest())).total_size
    error = await refused(caller.send("Do it.", now=True), A2AClientError)
    answer = caller.answers[-1]["error"]
    info = answer["data" if caller.binding == RPC else "details"][0]
    found = (info["@type"].rsplit(".", 1)[1], info["domain"], info["reason"], info["metadata"]["rule"])
    check.same(found, ("ErrorInfo", "lastword", "ROOT_ALLOWANCE", "D7"), "a refusal of the broker")
    check.holds(int(info["metadata"]["retryAfterMs"]) > 0 and info["metadata"]["hint"], info)
    check.same(answer["code"], -32000 if caller.binding == RPC else 429, "its code")
    check.holds("-32000" in str(error) or "429" in str(error), error)
    check.same((await caller.waits.list_tasks(ListTasksRequest())).total_size, before, "a refusal makes no task")


async def python(world: World, binding: str) -> None:
    check = Checks(f"python client {binding}")
    name = "python-rpc" if binding == RPC else "python-rest"
    async with Caller(world, name, binding) as caller:
        await sends(world, caller, check)
        await card(world, caller, check)
        await streams(world, caller, check)
        await questions(world, caller, check)
        await pushes(world, caller, check)
        await refusals(world, caller, check)
    async with Caller(world, f"{name}-greedy", binding, "quiet") as caller:
        await broker_refusals(world, caller, check)
    check.told()


async def javascript(world: World, binding: str) -> None:
    name = "js-rpc" if binding == RPC else "js-rest"
    given = {"url": world.url, "binding": binding, "name": name, "tokens": world.tokens, "limits": world.limits}
    process = await asyncio.create_subprocess_exec(
        "node", "client.mjs", json.dumps(given), cwd=WORK, env=surroundings(), stdin=asyncio.subprocess.DEVNULL
    )
    try:
        code = await asyncio.wait_for(process.wait(), 120)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 0, f"client.mjs {binding} ended with {code}"


async def main() -> None:
    seats = ["python-rpc", "python-rest", "js-rpc", "js-rest"]
    async with World("clients", ["coder", "quiet"], seats) as world:
        await world.register("coder", actions=["review"], groups=["core"])
        await world.register("quiet", *seats, *(f"{name}-greedy" for name in seats))
        for binding in (RPC, REST):
            await python(world, binding)
        for binding in (RPC, REST):
            await javascript(world, binding)


asyncio.run(main())

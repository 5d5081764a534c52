"""The official MCP client, over streamable HTTP and over stdio: a whole request between two agents, and being told."""

import asyncio
import json
import warnings
from contextlib import asynccontextmanager

import httpx2
from broker import BINARY, Broker, surroundings
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

# Older revisions have no other way to subscribe.
warnings.filterwarnings("ignore", message="resources/subscribe is removed")

SECONDS_MAX = 180
TOOLS = 6
INBOX = "lastword://inbox"


@asynccontextmanager
async def over_http(broker, token, mode, **more):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS_MAX)
    async with http, Client(streamable_http_client(f"{broker.url}/mcp", http_client=http), mode=mode, **more) as client:
        yield client


@asynccontextmanager
async def over_stdio(broker, token, mode, **more):
    environment = {**surroundings(), "LASTWORD_URL": broker.url, "LASTWORD_TOKEN": token}
    server = StdioServerParameters(command=str(BINARY), args=["mcp"], env=environment, cwd=str(broker.directory))
    async with Client(server, mode=mode, **more) as client:
        yield client


async def done(client, tool, **arguments):
    """Calls a tool, which has to do it."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, f"{tool}: {result}"
    return result.structured_content


async def request(broker, connect, mode):
    """kilo asks two agents, they answer in prose and the other way round; each answer is that to its request."""
    tokens = {name: broker.agent(name) for name in ("kilo", "hive", "mike")}
    clients = [connect(broker, token, mode) for token in tokens.values()]
    async with clients[0] as kilo, clients[1] as hive, clients[2] as mike:
        tools = (await kilo.list_tools()).tools
        assert len(tools) == TOOLS, [tool.name for tool in tools]
        await refusal(kilo)

        asked = {}
        for name, ref in [("hive", "SUM-1"), ("mike", "SUM-2")]:
            question = f"What do you say, {name}?"
            asked[name] = await done(kilo, "send_agent_message", target_agent_id=name, message=question, ref=ref)
        for name, client in [("mike", mike), ("hive", hive)]:
            task = await done(client, "next_message", wait_ms=5_000)
            assert task["message"]["body"] == f"What do you say, {name}?", task
            await done(client, "finish_turn", answer=f"I am {name}, and all is well.")
        for _ in list(asked):
            got = await done(kilo, "next_message", wait_ms=5_000)
            answered(got, asked)
            settled = await done(kilo, "check_request", request_id=got["message"]["request_id"])
            assert settled["status"] == "completed" and settled["response"]["body"] == got["message"]["body"], settled
            await done(kilo, "finish_turn", answer="I know now.")
        assert not asked, f"no answer to {asked}"

        await waiting(kilo, hive)
        return kilo.protocol_version


def answered(delivery, asked):
    """The delivery is the answer of one who was asked, to exactly that request."""
    message = delivery["message"]
    sent = asked.pop(message["from"])
    assert (message["type"], message["status"]) == ("response", "completed"), delivery
    assert message["body"] == f"I am {message['from']}, and all is well.", delivery
    assert (message["request_id"], message["ref"]) == (sent["request_id"], sent["ref"]), delivery


async def refusal(client):
    """What is refused is a result with a code and a hint, which a model can act on."""
    result = await client.call_tool("send_agent_message", {"target_agent_id": "kilo", "message": "me", "ref": "ME-1"})
    told = result.structured_content
    assert result.is_error and told["code"] == "self_send" and told["hint"], result
    assert told["hint"] in result.content[0].text, result


async def waiting(kilo, hive):
    """A send that waits gives the answer itself."""

    async def serve():
        task = await done(hive, "next_message", wait_ms=20_000)
        assert task["message"]["body"] == "Still there?", task
        await done(hive, "finish_turn", answer="Still here.")

    send = done(kilo, "send_agent_message", target_agent_id="hive", message="Still there?", ref="SUM-3", wait=True)
    sent, _ = await asyncio.gather(send, serve())
    assert sent["response"]["body"] == "Still here.", sent


async def told(broker, connect, mode):
    """A client subscribes to its inbox, is told of a delivery, and reads what waits, without taking it."""
    news = asyncio.Queue()

    async def hear(message):
        if getattr(message, "method", None) == "notifications/resources/updated":
            news.put_nowait(message.params.uri)

    async with connect(broker, broker.agent("oscar"), mode, message_handler=hear) as oscar:
        assert [str(resource.uri) for resource in (await oscar.list_resources()).resources][0] == INBOX
        primer = await oscar.get_prompt("lastword")
        assert "finish_turn" in primer.messages[0].content.text, primer
        listening = asyncio.create_task(listen(oscar, news)) if mode == "auto" else None
        if not listening:
            await oscar.subscribe_resource(INBOX)
        broker.call("POST", "/v1/messages", json={"type": "request", "to": "oscar", "ref": "TOLD-1", "body": "Hear?"})
        assert await news.get() == INBOX
        inbox = json.loads((await oscar.read_resource(INBOX, cache_mode="bypass")).contents[0].text)
        assert (inbox["queued"], inbox["waiting"][0]["ref"]) == (1, "TOLD-1"), inbox
        if listening:
            listening.cancel()
        task = await done(oscar, "next_message", wait_ms=5_000)
        assert task["message"]["body"] == "Hear?", task


async def listen(client, news):
    async with client.listen(resource_subscriptions=[INBOX]) as subscription:
        async for event in subscription:
            news.put_nowait(event.uri)


async def seated():
    """A human who sits at an agent's client is asked there, and the answer is that human's."""

    async def answer(context, params):
        assert params.message == "oscar asks: To eu or us?", params
        return ElicitResult(action="accept", content={"answer": "eu"})

    with Broker('[seats]\noscar = "alice"\n') as broker:
        broker.agent("alice", kind="human")
        async with over_http(broker, broker.agent("oscar"), "auto", elicitation_callback=answer) as oscar:
            broker.call("POST", "/v1/messages", json={"type": "request", "to": "oscar", "ref": "SEAT-1", "body": "Go."})
            await done(oscar, "next_message", wait_ms=5_000)
            told = await done(oscar, "escalate_to_user", message="To eu or us?")
            assert (told["state"], told["answered_by"], told["answer"]) == ("answered", "alice", "eu"), told
    print("over streamable HTTP: an escalation answered at the agent's own client")


async def main():
    for name, connect in [("streamable HTTP", over_http), ("stdio", over_stdio)]:
        for mode in ("legacy", "auto"):
            with Broker() as broker:
                revision = await asyncio.wait_for(request(broker, connect, mode), SECONDS_MAX)
                await asyncio.wait_for(told(broker, connect, mode), SECONDS_MAX)
            print(
                f"over {name}, revision {revision}: three requests answered, a refusal told with code and hint,"
                " a subscriber told of its delivery"
            )
    await asyncio.wait_for(seated(), SECONDS_MAX)


asyncio.run(main())

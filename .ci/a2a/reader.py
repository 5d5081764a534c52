"""Reads a stream by the SDK for Python and prints its events: reader.py URL TOKEN BINDING TASK."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import SubscribeToTaskRequest
from google.protobuf.json_format import MessageToDict


async def events(url: str, token: str, binding: str, task: str) -> AsyncIterator[dict]:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        stream = ClientFactory(config).create(card).subscribe(SubscribeToTaskRequest(id=task))
        try:
            async for event in stream:
                yield MessageToDict(event)
        finally:
            await stream.aclose()


async def main() -> None:
    async for event in events(*sys.argv[1:]):
        print(json.dumps(event), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

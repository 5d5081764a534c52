"""Two agents without a framework: a writer who asks a checker, and a human before the text goes out.

lastword serve                                            # another terminal
export WRITER=$(lastword agent add writer) CHECKER=$(lastword agent add checker)
python two_agents.py
lastword ask writer "A line about brokers" --ref TEXT-1   # another terminal; then: lastword approve apr-1
"""

import asyncio
import os

from lastword import Agent, Turn

URL = os.environ.get("LASTWORD_URL", "http://127.0.0.1:7171")
writer, checker = Agent(URL, os.environ["WRITER"]), Agent(URL, os.environ["CHECKER"])


@writer.on_request()
async def write(turn: Turn, body: str) -> str:
    text = f"{body}: they carry messages."
    checked = await turn.ask("checker", text)
    publish = await turn.approve("publish", {"text": text, "note": checked.text})
    return f"Published: {publish.arguments['text']}"


@checker.on_request()
async def check(turn: Turn, body: str) -> str:
    return f"{len(body.split())} words"


async def serve() -> None:
    await asyncio.gather(writer.serve(), checker.serve())


asyncio.run(serve())

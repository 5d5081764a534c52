"""An agent whose handler has five steps, each of them durable. The test kills it."""

import random

from lastword import Agent, Turn

agent = Agent.from_env()


async def draw() -> int:
    return random.randrange(1_000_000)


@agent.on_request()
async def work(turn: Turn) -> str:
    card = await turn.step("draw a card", draw)
    one = await turn.ask("other", "one", payload={"card": card})
    answer = await turn.escalate("Go on?", options=["yes", "no"])
    async with turn.claim("repo:src/*"):
        two = await turn.ask("other", "two", payload={"card": card})
        push = await turn.approve("git", {"args": ["push"]})
    return f"{one.text} {two.text} {answer} {push.arguments['args'][0]}ed"


agent.run()

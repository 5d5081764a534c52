"""An agent whose handler has five steps, each of them durable. The test kills it."""

from lastword import Agent, Turn

agent = Agent.from_env()


@agent.on_request()
async def work(turn: Turn) -> str:
    one = await turn.ask("other", "one")
    answer = await turn.escalate("Go on?", options=["yes", "no"])
    async with turn.claim("repo:src/*"):
        two = await turn.ask("other", "two")
        push = await turn.approve("git", {"args": ["push"]})
    return f"{one.text} {two.text} {answer} {push.arguments['args'][0]}ed"


agent.run()

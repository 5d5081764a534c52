/** An agent whose handler has six steps, each of them durable. The test kills it. */

import { Agent } from "../src/index.ts";

const agent = Agent.fromEnv();

agent.onRequest(async (turn) => {
  // Another card in each run, unless the step is kept: the requests would be others then.
  const payload = { card: await turn.step("draw a card", () => Math.random()) };
  const one = await turn.ask("other", "one", { payload });
  const answer = await turn.escalate("Go on?", { options: ["yes", "no"] });
  return turn.claim("repo:src/*", async () => {
    const two = await turn.ask("other", "two", { payload });
    const push = await turn.approve("git", { args: ["push"] });
    return `${one.text} ${two.text} ${answer} ${(push.arguments as { args: string[] }).args[0]}ed`;
  });
});

await agent.run();

/**
 * An agent that asks a human before it acts.
 *
 *   export LASTWORD_TOKEN=$(lastword agent add deployer)
 *   node approval.ts
 *   lastword ask deployer "shop" --ref T-1     # in another terminal; then `lastword approve apr-1`
 */

import { Agent, Rejected } from "@lastword/sdk";

const agent = Agent.fromEnv();

agent.onRequest(async (turn) => {
  const region = await turn.escalate(`Where shall ${turn.text} run?`, {
    options: ["eu", "us"],
  });
  try {
    const deploy = await turn.approve(
      "deploy",
      { service: turn.text, region },
      { reason: "the tests pass" },
    );
    if (deploy.repeated)
      return "An earlier run may have deployed it: look there.";
    const { service } = deploy.arguments as { service: string }; // As asked, or as the human edited it.
    return `Deployed ${service} to ${region}.`;
  } catch (error) {
    if (error instanceof Rejected)
      return `Not deployed: ${error.comment ?? error.state}`;
    throw error;
  }
});

await agent.run();

/**
 * Two agents that ask each other.
 *
 *   export PLANNER=$(lastword agent add planner) TESTER=$(lastword agent add tester --action run_tests)
 *   node team.ts
 *   lastword ask planner "main" --ref T-1      # in another terminal
 */

import { Agent, Answer } from "@lastword/sdk";
import { z } from "zod";

const url = process.env.LASTWORD_URL ?? "http://127.0.0.1:7171";
const planner = new Agent({ url, token: process.env.PLANNER ?? "" });
const tester = new Agent({ url, token: process.env.TESTER ?? "" });

planner.onRequest(async (turn) => {
  const payload = { branch: turn.text };
  const tests = await turn.ask("#run_tests", "Run the tests", {
    action: "run_tests",
    payload,
  });
  return tests.failed
    ? `Not released: ${tests.message.reason}`
    : `Released: ${tests.text}`;
});

tester.onRequest(
  "run_tests",
  async (turn, { branch }) => {
    await turn.progress(`testing ${branch}`);
    return new Answer(`${branch} is fine`, { payload: { passed: 12 } });
  },
  { payload: z.object({ branch: z.string() }) },
);

await Promise.all([planner.run(), tester.run()]);

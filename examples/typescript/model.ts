/**
 * A model that asks the team and pushes what a human approves. Its words are scripted, so that it runs without a key: take
 * a model of a provider instead.
 *
 *   export LASTWORD_TOKEN=$(lastword agent add coder)
 *   node model.ts
 *   lastword ask coder "Push it" --ref T-1     # in another terminal; then `lastword approve apr-1`
 */

import { Agent } from "@lastword/sdk";
import {
  askAgent,
  generate,
  listAgents,
  promptOf,
  recorded,
} from "@lastword/sdk/ai";
import { tool, ToolLoopAgent } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

const usage = {
  inputTokens: { total: 900, noCache: 900, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 20, text: 20, reasoning: undefined },
};
const call = {
  type: "tool-call",
  toolCallId: "1",
  toolName: "git",
  input: '{"args":["push"]}',
} as const;
const scripted = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) =>
    prompt.at(-1)?.role === "tool"
      ? {
          content: [{ type: "text", text: "Pushed." }],
          finishReason: { unified: "stop", raw: undefined },
          usage,
          warnings: [],
        }
      : {
          content: [call],
          finishReason: { unified: "tool-calls", raw: undefined },
          usage,
          warnings: [],
        },
});

const git = tool({
  description: "Runs git",
  inputSchema: z.object({ args: z.array(z.string()) }),
  execute: async ({ args }) => `git ${args.join(" ")}: done`,
});

const agent = Agent.fromEnv();

agent.onRequest(async (turn) => {
  const loop = new ToolLoopAgent({
    model: recorded(turn, scripted),
    instructions: "When a call is not approved, do not repeat it.",
    tools: { ask_agent: askAgent(turn), list_agents: listAgents(turn), git },
    toolApproval: { git: "user-approval" },
  });
  const { text } = await generate(turn, loop, promptOf(turn));
  return text;
});

await agent.run();

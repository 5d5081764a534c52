/** For Mastra: the team as tools, calls that wait for a human, and usage that is counted. */

import { isDeepStrictEqual } from "node:util";

import type { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";

import { ask, ASK, held, list, LIST, QUESTION, type Question, throwFault } from "./models.ts";
import type { Turn } from "./turn.ts";

export { promptOf, recorded } from "./models.ts";

type Output = Awaited<ReturnType<Agent["stream"]>>;
type Waiting = { toolCallId: string; toolName: string; args: unknown };

/** A tool by which a model asks other agents. */
export function askAgent(turn: Turn) {
  const execute = (question: unknown) => ask(turn, question as Question);
  return createTool({ id: "ask_agent", description: ASK, inputSchema: QUESTION, execute });
}

/** A tool by which a model sees whom it may ask. */
export function listAgents(turn: Turn) {
  const inputSchema = { type: "object", properties: {} } as const;
  return createTool({ id: "list_agents", description: LIST, inputSchema, execute: () => list(turn) });
}

/**
 * Runs an agent to its answer. Calls of tools with `requireApproval` are held in Lastword: a human approves or rejects
 * each, and the agent goes on with that. Mastra makes a call only as its model wrote it: one that a human edited is
 * declined with the arguments to use, and the model's next call with exactly these is made without asking again. Usage
 * is counted, and the end of the turn ends the run.
 */
export async function generate(turn: Turn, agent: Agent<any, any, any, any>, prompt: Parameters<Agent["stream"]>[0]) {
  // A run that waits is kept in a store. What is to outlive the process is in the turn.
  if (agent.getMastraInstance() === undefined) {
    new Mastra({ agents: { [agent.id]: agent }, storage: new InMemoryStore(), logger: false });
  }
  const edited: { tool: string; args: unknown }[] = [];
  let output: Output = await agent.stream(prompt, { abortSignal: turn.signal });
  while (true) {
    const waiting = await follow(turn, output);
    throwFault(turn);
    if (waiting === undefined) return output.getFullOutput();
    const { toolCallId, toolName: tool, args } = waiting;
    const which = { runId: output.runId, toolCallId, abortSignal: turn.signal };
    const known = edited.findIndex((call) => call.tool === tool && isDeepStrictEqual(call.args, args));
    if (known >= 0) edited.splice(known, 1);
    const decided = known >= 0 ? { approved: true, arguments: args } : await held(turn, tool, args);
    if (!("arguments" in decided)) output = await agent.declineToolCall({ ...which, reason: decided.reason });
    else if (isDeepStrictEqual(decided.arguments, args)) output = await agent.approveToolCall(which);
    else {
      edited.push({ tool, args: decided.arguments });
      const reason = `A human changed this call. Make it with exactly these arguments: ${JSON.stringify(decided.arguments)}`;
      output = await agent.declineToolCall({ ...which, reason });
    }
  }
}

/** Reads a run until it ends or waits for an approval; counts what its steps used. */
async function follow(turn: Turn, output: Output): Promise<Waiting | undefined> {
  let waiting: Waiting | undefined;
  for await (const chunk of output.fullStream) {
    if (chunk.type === "tool-call-approval") waiting ??= chunk.payload;
    if (chunk.type === "error") throw chunk.payload.error;
    if (chunk.type !== "step-finish") continue;
    const { usage } = chunk.payload.output;
    turn.spent({
      inputTokens: usage.inputTokens,
      outputTokens: usage.outputTokens,
      cacheReadTokens: usage.cachedInputTokens,
      cacheWriteTokens: usage.cacheCreationInputTokens,
      model: chunk.payload.metadata.modelId as string | undefined,
    });
  }
  return waiting;
}

/** For the Vercel AI SDK: the team as tools, calls that wait for a human, and usage that is counted. */

import { isDeepStrictEqual } from "node:util";

import {
  type Agent,
  jsonSchema,
  type LanguageModelUsage,
  type ModelMessage,
  type Tool,
  tool,
  type ToolApprovalResponse,
} from "ai";

import { ask, ASK, held, list, LIST, QUESTION, type Question, throwFault } from "./models.ts";
import type { Turn } from "./turn.ts";

export { promptOf, recorded } from "./models.ts";

/** A tool by which a model asks other agents. */
export function askAgent(turn: Turn): Tool<Question, unknown> {
  const inputSchema = jsonSchema<Question>(QUESTION);
  return tool({ description: ASK, inputSchema, execute: (question) => ask(turn, question) });
}

/** A tool by which a model sees whom it may ask. */
export function listAgents(turn: Turn): Tool<Record<string, never>, unknown> {
  const inputSchema = jsonSchema<Record<string, never>>({
    type: "object",
    properties: {},
    additionalProperties: false,
  });
  return tool({ description: LIST, inputSchema, execute: () => list(turn) });
}

/** A callback for `onStepEnd` that counts what each call of the model used. */
export function countUsage(turn: Turn) {
  return ({ usage, model }: { usage: LanguageModelUsage; model: { modelId: string } }): void => {
    const { inputTokens, inputTokenDetails, outputTokens } = usage;
    const { cacheReadTokens, cacheWriteTokens } = inputTokenDetails;
    turn.spent({ inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, model: model.modelId });
  };
}

/**
 * Runs an agent to its answer. Calls to which its `toolApproval` says `user-approval` are held in Lastword: a human
 * approves, edits or rejects each, and the agent goes on with that. Usage is counted, and the end of the turn ends the
 * run.
 */
export async function generate<A extends Agent<never, any, any, any>>(
  turn: Turn,
  agent: A,
  prompt: string | ModelMessage[],
): Promise<Awaited<ReturnType<A["generate"]>>> {
  const messages: ModelMessage[] = typeof prompt === "string" ? [{ role: "user", content: prompt }] : [...prompt];
  while (true) {
    const result = await agent.generate({ messages, abortSignal: turn.signal, onStepEnd: countUsage(turn) });
    throwFault(turn);
    const answered = structuredClone(result.responseMessages);
    const responses: ToolApprovalResponse[] = [];
    for (const part of result.finalStep.content) {
      if (part.type !== "tool-approval-request" || part.isAutomatic) continue;
      const { toolCallId, toolName, input } = part.toolCall;
      const decided = await held(turn, toolName, input, part.reason);
      if (decided.approved && !isDeepStrictEqual(decided.arguments, input))
        edit(answered, toolCallId, part.approvalId, decided.arguments);
      const { approved, reason } = { reason: undefined, ...decided };
      responses.push({
        type: "tool-approval-response",
        approvalId: part.approvalId,
        approved,
        ...(reason && { reason }),
      });
    }
    if (responses.length === 0) return result as Awaited<ReturnType<A["generate"]>>;
    messages.push(...answered, { role: "tool", content: responses });
  }
}

/** Puts the arguments that a human decided on into the call that the model asked for. */
function edit(messages: ModelMessage[], toolCallId: string, approvalId: string, input: unknown): void {
  for (const { content } of messages) {
    if (typeof content === "string") continue;
    for (const part of content) {
      if (part.type === "tool-call" && part.toolCallId === toolCallId) part.input = input;
      // The SDK compares with what the model wrote, if it kept that.
      if (part.type === "tool-approval-request" && part.approvalId === approvalId) {
        delete (part as { inputSchemaInput?: unknown }).inputSchemaInput;
      }
    }
  }
}

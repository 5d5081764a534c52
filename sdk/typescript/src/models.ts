/** What the frameworks have in common: what a model asks of the team, reads of it, and is told by the broker. */

import { randomBytes } from "node:crypto";

import { Refused, Rejected } from "./errors.ts";
import type { Turn } from "./turn.ts";

/** The tools of a team, as a model reads them. */
export const ASK =
  "Asks another agent of the team and waits for its answer. What it answers is its own word, not the user's.";
export const LIST = "Lists the agents of the team, and the actions that they serve.";

export interface Question {
  to: string;
  text: string;
  action?: string | undefined;
}

/** The JSON Schema of a `Question`. */
export const QUESTION = {
  type: "object" as const,
  properties: {
    to: {
      type: "string" as const,
      description: "An agent (`kilo`), a group (`@reviewers`) or who serves an action (`#run_tests`)",
    },
    text: { type: "string" as const, description: "The request, with all that the agent has to know" },
    action: { type: "string" as const, description: "One of the agent's actions, if it is asked for one" },
  },
  required: ["to", "text"],
  additionalProperties: false,
};

/** Errors of tools that are no results for a model. A framework would make them some. */
const faults = new WeakMap<Turn, unknown>();

/** Asks an agent; the answer has its words in strings of a JSON value, next to whose they are. */
export function ask(turn: Turn, { to, text, action }: Question): Promise<unknown> {
  return told(turn, async () => {
    const { message, status, payload } = await turn.ask(to, text, { action });
    const { from, from_human, body, reason } = message;
    return { from, from_human: from_human ?? false, status, text: body, payload, reason };
  });
}

export function list(turn: Turn): Promise<unknown> {
  return told(turn, async () => {
    const agents = (await turn.agents()).filter(({ kind }) => kind === "agent");
    return agents.map(({ name, actions, groups, connected, state }) => ({ name, actions, groups, connected, state }));
  });
}

/** A refusal is a result that a model can act on; any other error ends the handler. */
async function told(turn: Turn, call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof Refused) return error.modelHint();
    faults.set(turn, error);
    throw error;
  }
}

/** Throws what a tool threw, which the framework may have told the model instead. */
export function throwFault(turn: Turn): void {
  turn.signal.throwIfAborted();
  if (faults.has(turn)) throw faults.get(turn);
}

/** Holds a call for a human. Returns the arguments to make it with, or why it isn't made. */
export async function held(
  turn: Turn,
  tool: string,
  args: unknown,
  reason?: string,
): Promise<{ approved: true; arguments: unknown } | { approved: false; reason: string }> {
  try {
    const approved = await turn.approve(tool, args, { reason });
    if (!approved.repeated) return { approved: true, arguments: approved.arguments };
    return { approved: false, reason: `An earlier run may have made this call of ${tool}: look before you ask again.` };
  } catch (error) {
    if (error instanceof Refused || error instanceof Rejected) return { approved: false, reason: error.modelHint() };
    throw error;
  }
}

/** The request of a turn as a prompt: the sender's words are between two lines that none of them can imitate. */
export function promptOf(turn: Turn): string {
  const { from, from_human, action, body, payload } = turn.message;
  const words = [body, ...(payload === undefined ? [] : [`payload\n${JSON.stringify(payload, undefined, 2)}`])];
  let line: string;
  do line = `-----${randomBytes(4).toString("hex")}-----`;
  while (words.some((text) => text.includes(line)));
  const head = `A request from ${from}${from_human ? ", a human" : ", an agent"}${action ? ` (action ${action})` : ""}:`;
  return `${head}\n${line}\n${words.join(`\n${line} `)}\n${line}`;
}

/** What this needs of a model of the AI SDK; Mastra takes the same. */
interface Model {
  doGenerate(options: never): PromiseLike<object>;
  doStream(options: never): PromiseLike<{ stream: ReadableStream }>;
}

/**
 * A model whose answers are steps of the turn: a run after a crash gets the same ones, and so makes the same calls. An
 * answer that is streamed is passed on once it is complete.
 */
export function recorded<M extends Model>(turn: Turn, model: M): M {
  const doGenerate = async (options: never) => {
    const step = await turn.step("model", async () => {
      const { request: _, response, ...answer } = (await model.doGenerate(options)) as Record<string, unknown>;
      const { headers: _h, body: _b, ...metadata } = (response ?? {}) as Record<string, unknown>;
      return encode({ ...answer, response: metadata });
    });
    return decode(step);
  };
  const doStream = async (options: never) => {
    const step = await turn.step("model", async () => {
      const parts = [];
      for await (const part of (await model.doStream(options)).stream) {
        if (part.type === "error") throw part.error; // It isn't recorded.
        if (part.type !== "raw") parts.push(part);
      }
      return encode(parts);
    });
    return { stream: ReadableStream.from(decode(step) as unknown[]) };
  };
  const own: Partial<Record<PropertyKey, unknown>> = { doGenerate, doStream };
  return new Proxy(model, { get: (target, name) => own[name] ?? Reflect.get(target, name, target) });
}

/** An answer as JSON: it may have times and bytes. */
function encode(answer: unknown): unknown {
  const text = JSON.stringify(answer, function (this: Record<string, unknown>, key, value: unknown) {
    const raw = this[key];
    if (raw instanceof Date) return { $time: raw.toISOString() };
    if (raw instanceof Uint8Array) return { $bytes: Buffer.from(raw).toString("base64") };
    return value;
  });
  return JSON.parse(text);
}

function decode(answer: unknown): unknown {
  return JSON.parse(JSON.stringify(answer), (_, value: { $time?: string; $bytes?: string } | null) => {
    if (typeof value?.$time === "string") return new Date(value.$time);
    if (typeof value?.$bytes === "string") return new Uint8Array(Buffer.from(value.$bytes, "base64"));
    return value;
  });
}

/** Models that say what a test has them say. */

import { MockLanguageModelV4 } from "ai/test";

type Part = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"] extends ReadableStream<infer P> ? P : never;

const USAGE = {
  inputTokens: { total: 100, noCache: 60, cacheRead: 40, cacheWrite: 0 },
  outputTokens: { total: 10, text: 10, reasoning: undefined },
};

/** What a model says next: a text, or calls of tools. */
export type Said = string | { tool: string; input: unknown }[];

/** A model that says these one after the other, also as a stream. */
export function scripted(...says: Said[]): MockLanguageModelV4 {
  let next = 0;
  const content = () => {
    const said = says[next++] ?? "Nothing more.";
    if (typeof said === "string") return [{ type: "text" as const, text: said }];
    return said.map(({ tool, input }, at) => {
      const toolCallId = `call-${next}-${at}`;
      return { type: "tool-call" as const, toolCallId, toolName: tool, input: JSON.stringify(input) };
    });
  };
  const finish = (calls: boolean) => ({ unified: calls ? ("tool-calls" as const) : ("stop" as const), raw: undefined });
  return new MockLanguageModelV4({
    modelId: "a-model",
    doGenerate: async () => {
      const parts = content();
      const calls = parts.some(({ type }) => type === "tool-call");
      const response = { id: "one", timestamp: new Date(0), modelId: "a-model", body: "long" };
      return { content: parts, finishReason: finish(calls), usage: USAGE, warnings: [], response };
    },
    doStream: async () => {
      const parts = content();
      const calls = parts.some(({ type }) => type === "tool-call");
      const stream: Part[] = [{ type: "stream-start", warnings: [] }];
      stream.push({ type: "response-metadata", id: "one", timestamp: new Date(0), modelId: "a-model" });
      for (const part of parts) {
        if (part.type === "tool-call") stream.push(part);
        else stream.push({ type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: part.text });
        if (part.type === "text") stream.push({ type: "text-end", id: "1" });
      }
      stream.push({ type: "finish", finishReason: finish(calls), usage: USAGE });
      return { stream: ReadableStream.from(stream) as ReadableStream<Part> };
    },
  });
}

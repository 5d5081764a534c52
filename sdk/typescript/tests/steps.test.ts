/** Steps of a turn, against the shapes that the broker delivers and answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent as MastraAgent } from "@mastra/core/agent";
import { generateText, stepCountIs, streamText, ToolLoopAgent } from "ai";

import { askAgent, generate, recorded } from "../src/ai.ts";
import { type CallOptions, NotDeterministic, type Session, Turn } from "../src/index.ts";
import * as mastra from "../src/mastra.ts";
import type { StoredMessage } from "../src/wire.ts";
import { scripted } from "./models.ts";

interface Step {
  key: string;
  result: unknown;
}

/** A turn of a broker that has these steps, and keeps further ones. */
function turn(steps: Step[]): Turn {
  const call = async (name: string, { path, body }: CallOptions) => {
    if (name === "send") return { response: { from: "other", body: "yes" } };
    assert.deepEqual([name, path], ["progress", "turn-3"]);
    const { step } = JSON.parse(JSON.stringify(body)) as { step: Step };
    assert.deepEqual(Object.keys(step), ["key", "result"]);
    if (!steps.some(({ key }) => key === step.key)) steps.push(step);
    return { deadline: "2026-01-01T00:00:00Z" };
  };
  const view = { id: "turn-3", token: "turn-3.x", deadline: "2026-01-01T00:00:00Z", attempt: 1 };
  const message = { id: "msg-7", body: "go", from: "kilo" } as StoredMessage;
  const delivered = steps.length > 0 ? { ...view, steps: structuredClone(steps) } : view;
  return new Turn({ call } as unknown as Session, delivered, message, new AbortController().signal);
}

test("a step runs once, and its result is JSON in each run", async () => {
  const steps: Step[] = [];
  let runs = 0;
  const work = () => ({ at: new Date(0), runs: ++runs });
  for (let run = 0; run < 2; run += 1) {
    const again = turn(steps);
    assert.deepEqual(await again.step("fetch", work), { at: "1970-01-01T00:00:00.000Z", runs: 1 });
    assert.equal((await again.ask("other", "well?")).text, "yes");
    assert.equal(await again.step("tell it", () => undefined), null);
  }
  assert.deepEqual(
    steps.map(({ key }) => key),
    ["1.fetch", "3.tell%20it"],
  );
});

test("a step that fails runs again", async () => {
  const steps: Step[] = [];
  await assert.rejects(
    turn(steps).step("fetch", () => Promise.reject(new RangeError("no"))),
    RangeError,
  );
  assert.equal(await turn(steps).step("fetch", async () => "yes"), "yes");
});

test("another way past a recorded step is told by name", async () => {
  const steps = [{ key: "1.fetch", result: 1 }];
  const told = (error: unknown) =>
    error instanceof NotDeterministic && error.message.startsWith("call 1 of the handler");
  await assert.rejects(turn(steps).step("write", assert.fail), told);
  await assert.rejects(turn(steps).ask("other", "well?"), told);
  // A place is a whole number, not the beginning of one.
  assert.equal(await turn([{ key: "11.fetch", result: 1 }]).step("write", () => 2), 2);
});

test("a run after a crash gets the answers that the model gave", async () => {
  const steps: Step[] = [];
  const call = { tool: "ask_agent", input: { to: "other", text: "well?" } };
  for (const says of [[[call], "It says yes."], []]) {
    const model = scripted(...says);
    const again = turn(steps);
    const { text, steps: made } = await generateText({
      model: recorded(again, model),
      tools: { ask_agent: askAgent(again) },
      prompt: "Ask.",
      stopWhen: stepCountIs(5),
    });
    assert.equal(text, "It says yes.");
    assert.deepEqual([model.doGenerateCalls.length, made[0]?.response.timestamp], [says.length, new Date(0)]);
  }
  assert.deepEqual(
    steps.map(({ key }) => key),
    ["1.model", "3.model"],
  );
  assert.doesNotMatch(JSON.stringify(steps), /long/, "the body of the response isn't recorded");
});

test("an answer that is streamed is recorded, too", async () => {
  const steps: Step[] = [];
  for (const says of [["One after the other."], []]) {
    const model = scripted(...says);
    assert.equal(
      await streamText({ model: recorded(turn(steps), model), prompt: "Say it." }).text,
      "One after the other.",
    );
    assert.equal(model.doStreamCalls.length, says.length);
  }
});

test("a run of Mastra after a crash gets the answers that the model gave", async () => {
  const steps: Step[] = [];
  const call = { tool: "ask_agent", input: { to: "other", text: "well?" } };
  for (const says of [[[call], "It says yes."], []]) {
    const model = scripted(...says);
    const again = turn(steps);
    const loop = new MastraAgent({
      id: "loop",
      name: "loop",
      instructions: "Work.",
      model: recorded(again, model) as never,
      tools: { ask_agent: mastra.askAgent(again) },
    });
    assert.equal((await mastra.generate(again, loop, "Ask.")).text, "It says yes.");
    assert.equal(model.doStreamCalls.length, says.length);
  }
  assert.deepEqual(
    steps.map(({ key }) => key),
    ["1.model", "3.model"],
  );
});

test("a model that takes another way ends the handler, and isn't told so instead", async () => {
  const call = { tool: "ask_agent", input: { to: "other", text: "well?" } };
  const again = turn([{ key: "1.fetch", result: 1 }]);
  const loop = new ToolLoopAgent({ model: scripted([call], "Never mind."), tools: { ask_agent: askAgent(again) } });
  await assert.rejects(generate(again, loop, "Ask."), NotDeterministic);
});

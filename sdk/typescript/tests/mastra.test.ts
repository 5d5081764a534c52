/** Mastra with scripted models, against the real broker. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent as MastraAgent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

import { Agent, type Turn } from "../src/index.ts";
import { askAgent, generate, listAgents, promptOf } from "../src/mastra.ts";
import { scripted } from "./models.ts";
import { serving, withBroker } from "./running.ts";

const about = { id: "loop", name: "loop", instructions: "Work." };

test("a model asks other agents, and reads refusals", () =>
  withBroker(async (broker, operator) => {
    const [planner, tester] = [new Agent(await broker.agent("planner")), new Agent(await broker.agent("tester"))];
    tester.onRequest((turn) => `${turn.text}: all pass.`);
    const calls = [
      { tool: "list_agents", input: {} },
      { tool: "ask_agent", input: { to: "tester", text: "Run them" } },
      { tool: "ask_agent", input: { to: "nobody", text: "Hello" } },
    ];
    const model = scripted(calls, "Done.");
    planner.onRequest(async (turn) => {
      const tools = { ask_agent: askAgent(turn), list_agents: listAgents(turn) };
      const loop = new MastraAgent({ ...about, model: model as never, tools });
      return (await generate(turn, loop, promptOf(turn))).text;
    });
    const reply = await serving([planner, tester], () => operator.ask("planner", "Test it", { ref: "T-1" }));
    assert.equal(reply.text, "Done.", reply.message.reason ?? "");
    const read = JSON.stringify(model.doStreamCalls[1]?.prompt);
    assert.match(read, /"name":"planner".*"name":"tester"/);
    assert.match(read, /"from":"tester","from_human":false,"status":"completed","text":"Run them: all pass\."/);
    assert.match(read, /Refused \(unknown_recipient\)/);
    const tree = await broker.human().call("GET", "/conversations/{ref}", { path: { ref: "T-1" } });
    // Two steps of 60 tokens, 40 from a cache that count a tenth, and 10 written.
    const spent = tree.grants[0]?.limits.find(({ name }) => name === "grant_tokens_max");
    assert.ok(spent !== undefined && spent.current >= 2 * 74 && spent.current < 2 * 110, JSON.stringify(spent));
  }));

test("a human approves, edits and rejects the calls of a model", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const made: unknown[] = [];
    const git = createTool({
      id: "git",
      description: "Runs git",
      inputSchema: z.object({ args: z.array(z.string()) }),
      requireApproval: true,
      execute: async (input) => made.push(input) && "pushed",
    });
    const push = (...args: string[]) => ({ tool: "git", input: { args: ["push", ...args] } });
    // The first two are asked for at once. The model then makes the call that was changed, and one more.
    const model = scripted([push(), push("--force")], [push("--force-with-lease")], [push("--all")], "Done.");
    agent.onRequest(async (turn: Turn) => {
      return (await generate(turn, new MastraAgent({ ...about, model: model as never, tools: { git } }), turn.text))
        .text;
    });
    const seen: unknown[] = [];
    const reply = await serving([agent], async () => {
      const asked = operator.ask("kilo", "Push", { ref: "T-1" });
      for await (const waiting of operator.watch()) {
        assert.ok("tool" in waiting);
        seen.push(waiting.arguments);
        const edited = { arguments: { args: ["push", "--force-with-lease"] } };
        if (seen.length === 1) await operator.decide(waiting, "approve");
        else if (seen.length === 2) await operator.decide(waiting, "edit", edited);
        else await operator.decide(waiting, "reject", { comment: "not on a Friday" });
        if (seen.length === 3) break;
      }
      return asked;
    });
    assert.equal(reply.text, "Done.", reply.message.reason ?? "");
    assert.deepEqual(seen, [push().input, push("--force").input, push("--all").input]);
    assert.deepEqual(made, [push().input, push("--force-with-lease").input]);
    const read = JSON.stringify(model.doStreamCalls[3]?.prompt);
    assert.match(read, /A human changed this call/);
    assert.match(read, /not made \(rejected\)\..*not on a Friday/);
  }));

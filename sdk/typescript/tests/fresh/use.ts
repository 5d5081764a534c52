/** What a project with the package compiles and runs, without types of Node. */

import { Agent, Client, Human, type Turn } from "@lastword/sdk";
import { Broker } from "@lastword/sdk/testing";
import type { AgentView } from "@lastword/sdk/wire";

// The types of the AI SDK itself have faults for a compiler that looks at them.
const ai: string = "@lastword/sdk/ai";
const { askAgent } = (await import(ai)) as { askAgent(turn: Turn): object };
declare const console: { log(text: string): void };

const broker = await Broker.start();
const agent = new Agent(await broker.agent("kilo"));
agent.onRequest("add", async (turn: Turn, { a, b }: { a: number; b: number }) => ({
  sum: a + b,
  tools: typeof askAgent(turn),
}));
const serving = agent.serve();
const human = new Human(broker.operator);
const { payload } = await human.ask("kilo", "", { ref: "T-1", action: "add", payload: { a: 1, b: 2 } });
const page = await new Client(broker.operator).call("GET", "/agents");
const names = page.items.map((one: AgentView) => one.name);
console.log(JSON.stringify({ payload, names }));
agent.stop();
await serving;
await human.close();
await broker.stop();

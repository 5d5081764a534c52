/** The code of the first page and the examples run as they are. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Agent, Answer, type Human } from "../src/index.ts";
import { serving, withBroker } from "./running.ts";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const EXAMPLES = fileURLToPath(new URL("../../../examples/typescript/", import.meta.url));

/** The programs of README.md, where the package's own name is known. */
function readme(): string[] {
  mkdirSync(`${HERE}.tmp-readme`, { recursive: true });
  const blocks = [...readFileSync(`${HERE}README.md`, "utf8").matchAll(/```ts\n(.*?)```/gs)];
  return blocks.map(([, code], at) => {
    const file = `${HERE}.tmp-readme/${at}.ts`;
    writeFileSync(file, code ?? "");
    return file;
  });
}

/** Runs programs while `work` does; each ends by SIGTERM, an agent with 0. */
async function running(
  programs: [string, NodeJS.ProcessEnv][],
  work: () => Promise<unknown>,
  [runtime, ...options]: [string, ...string[]] = [process.execPath],
): Promise<void> {
  const started = programs.map(([file, env]): [ChildProcess, Promise<unknown[]>] => {
    const child = spawn(runtime, [...options, file], { env: { ...process.env, ...env }, stdio: "inherit" });
    return [child, once(child, "exit")];
  });
  const early = Promise.race(started.map(([, ended]) => ended));
  try {
    await Promise.race([work(), early.then((how) => assert.fail(`a program ended: ${how}`))]);
  } finally {
    for (const [child] of started) child.kill();
  }
  assert.ok((await Promise.all(started.map(([, ended]) => ended))).every(([code, signal]) => code === 0 || signal));
}

/** Decides what waits as a human would who likes everything. */
async function agree(human: Human): Promise<never> {
  for await (const waiting of human.watch()) {
    if ("tool" in waiting) await human.decide(waiting, "approve");
    else await human.answer(waiting, waiting.options[0] ?? "Go on.");
  }
  throw new Error("the session ended");
}

test("the code of the first page reviews, decides and tests", () =>
  withBroker(async (broker, operator) => {
    const [reviewer, human, counts] = readme();
    assert.ok(reviewer && human && counts);
    const config = `${HERE}.tmp-readme/tsconfig.json`;
    writeFileSync(config, '{ "extends": "../tsconfig.json", "include": ["*.ts"] }');
    const [code] = await once(spawn("tsc", ["--project", config], { stdio: "inherit" }), "exit");
    assert.equal(code, 0, "tsc finds faults");

    const tester = new Agent(await broker.agent("tester", { actions: ["run_tests"] }));
    tester.onRequest("run_tests", () => new Answer("two tests fail", { status: "failed" }));
    const { url, token } = await broker.agent("reviewer", { actions: ["review_code"] });
    const env = { LASTWORD_URL: url, LASTWORD_TOKEN: token };
    const programs: [string, NodeJS.ProcessEnv][] = [
      [reviewer, env],
      [human, { ...env, LASTWORD_TOKEN: broker.operator.token }],
    ];
    await serving([tester], () =>
      running(programs, async () => {
        const more = { ref: "T-1", action: "review_code", payload: { diff: "+1" } };
        assert.equal((await operator.ask("reviewer", "", more)).text, "Merged.");
      }),
    );
    const [counted] = await once(spawn(process.execPath, [counts], { stdio: ["ignore", "ignore", "inherit"] }), "exit");
    assert.equal(counted, 0);
  }));

for (const runtime of [
  [process.execPath],
  ["bun"],
  ["deno", "run", "--allow-env", "--allow-net", "--allow-read"],
] as const) {
  test(`two agents of an example ask each other, across a restart, in ${runtime[0]}`, () =>
    withBroker(async (broker, operator) => {
      const planner = await broker.agent("planner");
      const tester = await broker.agent("tester", { actions: ["run_tests"] });
      const env = { LASTWORD_URL: planner.url, PLANNER: planner.token, TESTER: tester.token };
      const work = async () => {
        assert.equal((await operator.ask("planner", "main")).text, "Released: main is fine");
        await broker.kill();
        await broker.start();
        assert.equal((await operator.ask("planner", "next")).text, "Released: next is fine");
      };
      await running([[`${EXAMPLES}team.ts`, env]], work, [...runtime]);
    }));
}

for (const [name, text, expected] of [
  ["approval", "shop", "Deployed shop to eu."],
  ["model", "Push it", "Pushed."],
] as const) {
  test(`the example of ${name} goes on once a human agrees`, () =>
    withBroker(async (broker, operator) => {
      const { url, token } = await broker.agent("kilo");
      await running([[`${EXAMPLES}${name}.ts`, { LASTWORD_URL: url, LASTWORD_TOKEN: token }]], async () => {
        const reply = await Promise.race([operator.ask("kilo", text, { ref: "T-1" }), agree(operator)]);
        assert.equal(reply.text, expected, reply.message.reason ?? "");
      });
    }));
}

/** Connections that break between a call and its reply. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";

import { Agent, Disconnected, Human } from "../src/index.ts";
import { serving, withBroker } from "./running.ts";

/** A way to the broker that can be made one-way, or broken. */
class Way {
  readonly #sockets = new Set<Socket>();
  readonly #brokers = new Set<Socket>();
  readonly #server;
  readonly #deaf = new Set<Socket>();

  constructor(to: string) {
    this.#server = createServer((client) => {
      const broker = connect(Number(new URL(to).port), "127.0.0.1");
      this.#brokers.add(broker);
      for (const [one, other] of [
        [client, broker],
        [broker, client],
      ] as const) {
        this.#sockets.add(one);
        one.on("data", (data) => (this.#deaf.has(one) ? this.#heard?.() : other.write(data)));
        one.on("close", () => this.#sockets.delete(one) && other.destroy()).on("error", () => {});
      }
    }).listen(0, "127.0.0.1");
  }

  #heard: (() => void) | undefined;

  async url(): Promise<string> {
    if (!this.#server.listening) await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Loses what the broker says on the connections that are open; resolves once it has said something. */
  deafen(): Promise<void> {
    for (const broker of this.#brokers) this.#deaf.add(broker);
    return new Promise((resolve) => (this.#heard = resolve));
  }

  /** Breaks all connections; further ones work. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}

/** Runs a test with a question that waits, and a human whose way to the broker can break. */
function broken(test: (human: Human, way: Way, operator: Human) => Promise<void>) {
  return withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest((turn) => turn.escalate("Go on?"));
    const way = new Way(broker.operator.url);
    const human = new Human({ ...broker.operator, url: await way.url() });
    await serving([agent], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      await test(human, way, operator);
      assert.equal((await asked).text, "yes");
    }).finally(async () => {
      await human.close();
      way.close();
    });
  });
}

async function question(human: Human) {
  for await (const waiting of human.watch()) if (!("tool" in waiting)) return waiting;
  throw new Error("nothing waits");
}

test("an answer whose confirmation was lost counts, and isn't given twice", () =>
  broken(async (human, way) => {
    const waiting = await question(human);
    const said = way.deafen();
    const answered = human.answer(waiting, "yes");
    await said;
    way.cut();
    const { state, answer } = await answered;
    assert.deepEqual([state, answer], ["answered", "yes"]);
  }));

test("a call without a key is told that it broke off, and a read is made again", () =>
  broken(async (human, way, operator) => {
    const waiting = await question(human);
    const said = way.deafen();
    const [granted, read] = [human.grant("T-1", { messages: 1 }), human.questions()];
    await said;
    way.cut();
    await assert.rejects(granted, Disconnected);
    assert.equal((await read)[0]?.id, waiting.id);
    await operator.answer(waiting, "yes");
  }));

test("a connection that says nothing any more is replaced", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  return broken(async (human, way, operator) => {
    const waiting = await question(human);
    const said = way.deafen();
    const read = human.questions();
    await said;
    for (let beat = 0; beat < 4; beat += 1) t.mock.timers.tick(20_000);
    assert.equal((await read)[0]?.id, waiting.id, "by the next connection");
    await operator.answer(waiting, "yes");
  });
});

test("a break is logged once, and its end", (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const logged = (part: string) => warn.mock.calls.filter((call) => String(call.arguments[0]).includes(part)).length;
  return withBroker(async (broker, operator) => {
    await operator.approvals();
    await broker.kill();
    const read = operator.approvals();
    while (logged("it is tried again") === 0) await delay(5);
    await broker.start();
    await read;
    assert.deepEqual([logged("it is tried again"), logged("is open again")], [1, 1]);
  });
});

test("an agent without a server stops at once", { timeout: 5_000 }, async () => {
  const agent = new Agent({ url: "http://127.0.0.1:9", token: "lw_any" });
  const served = agent.serve();
  agent.stop();
  await served;
});

/** The scenarios that all clients play: `sdk/conformance`. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Refused } from "../src/errors.ts";
import { type CallOptions, type Push, Session } from "../src/session.ts";
import type { Broker } from "../src/testing.ts";
import { withBroker } from "./running.ts";

type Json = Record<string, any>;

const SCENARIOS = JSON.parse(readFileSync(new URL("../../conformance/calls.json", import.meta.url), "utf8")) as {
  name: string;
  agents: string[];
  steps: Json[];
}[];
const READS = new Set(["message", "request", "approval", "escalation", "conversation", "agent"]);

/** One who acts: a session, and what was pushed into it. */
class Member {
  readonly session: Session;
  #pushed: Json[] = [];
  #arrived = Promise.withResolvers<void>();

  constructor(credentials: { url: string; token: string }, isAgent: boolean) {
    const watch = () => (isAgent ? { deliveries: { working: [] } } : undefined);
    this.session = new Session(credentials, watch, (push) => this.#take(push));
  }

  #take({ delivery, ended }: Push): void {
    this.#pushed.push(delivery ?? { ended: ended?.turn });
    this.#arrived.resolve();
    this.#arrived = Promise.withResolvers();
  }

  async next(): Promise<Json> {
    while (this.#pushed.length === 0) await this.#arrived.promise;
    return this.#pushed.shift() as Json;
  }

  forget(): void {
    this.#pushed = [];
  }
}

class Scenario {
  readonly #broker: Broker;
  readonly #members: Map<string, Member>;
  readonly #known = new Map<string, string>();
  readonly #started = new Map<string, Promise<unknown>>();

  constructor(broker: Broker, members: Map<string, Member>) {
    this.#broker = broker;
    this.#members = members;
  }

  async play(raw: Json): Promise<void> {
    const step = this.#filled(raw) as Json;
    if (step["kill"]) {
      await this.#broker.kill();
      for (const member of this.#members.values()) member.forget();
      await this.#broker.start();
    } else if (step["refused"]) {
      const session = new Session({ url: this.#broker.operator.url, token: step["refused"] });
      await this.#ends(step, session.open());
    } else if (step["pushed"]) {
      const pushed = await this.#by(step).next();
      matches(step["pushed"], pushed, "");
      this.#save(step, pushed);
    } else if (step["wait"]) {
      await this.#ends(step, this.#started.get(step["wait"]) as Promise<unknown>);
    } else {
      const names = ["path", "query", "key", "turn", "body"].filter((name) => name in step);
      const members = Object.fromEntries(names.map((name) => [name, step[name]])) as CallOptions;
      const again = "key" in step || READS.has(step["call"]);
      const call = this.#by(step).session.call(step["call"], { ...members, again });
      if (!step["start"]) return this.#ends(step, call);
      call.catch(() => {}); // Whoever waits for it is told.
      this.#started.set(step["start"], call);
    }
  }

  #by(step: Json): Member {
    return this.#members.get(step["by"]) as Member;
  }

  async #ends(step: Json, call: Promise<unknown>): Promise<void> {
    if (!step["problem"]) {
      const result = await call;
      if ("result" in step) matches(step["result"], result, "");
      return this.#save(step, result as Json);
    }
    const refused = await call.then(
      () => assert.fail("it isn't refused"),
      (error: unknown) => error,
    );
    assert.ok(refused instanceof Refused, String(refused));
    matches(step["problem"], refused.problem, "");
  }

  #save(step: Json, found: Json): void {
    for (const [name, path] of Object.entries((step["save"] ?? {}) as Record<string, string>)) {
      this.#known.set(
        name,
        path.split(".").reduce<any>((value, member) => value[member], found),
      );
    }
  }

  /** The value with what was saved in place of its names. */
  #filled(value: unknown): unknown {
    if (typeof value === "string") return value.replace(/\$(\w+)/g, (text, name) => this.#known.get(name) ?? text);
    if (Array.isArray(value)) return value.map((one) => this.#filled(one));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, this.#filled(one)]));
  }
}

function matches(wanted: unknown, found: any, at: string): void {
  if (wanted === "*") return assert.ok(found !== undefined && found !== null, `nothing at ${at}`);
  if (Array.isArray(wanted)) {
    assert.equal(found?.length, wanted.length, `${at}: ${JSON.stringify(found)}`);
    return wanted.forEach((one, index) => matches(one, found[index], `${at}[${index}]`));
  }
  if (typeof wanted !== "object" || wanted === null) return assert.equal(found, wanted, at);
  for (const [name, one] of Object.entries(wanted)) matches(one, found?.[name], `${at}.${name}`);
}

for (const { name, agents, steps } of SCENARIOS) {
  test(name, () =>
    withBroker(async (broker) => {
      const members = new Map([["operator", new Member(broker.operator, false)]]);
      for (const agent of agents) members.set(agent, new Member(await broker.agent(agent), true));
      await Promise.all([...members.values()].map((member) => member.session.open()));
      const playing = new Scenario(broker, members);
      try {
        for (const [index, step] of steps.entries()) {
          const failed = (error: unknown) =>
            assert.fail(`step ${index + 1}, ${JSON.stringify(step)}: ${String(error)}`);
          await playing.play(step).catch(failed);
        }
      } finally {
        await Promise.all([...members.values()].map((member) => member.session.close()));
      }
    }),
  );
}

/** What the tests have in common. */

import { setTimeout as delay } from "node:timers/promises";

import { type Agent, Human, type Turn } from "../src/index.ts";
import { Broker } from "../src/testing.ts";

/** What only a fault takes, in milliseconds. */
const LATE = 60_000;

/** Runs a test with a broker of its own and a session of its first human. */
export async function withBroker(
  test: (broker: Broker, operator: Human) => Promise<void>,
  config = "",
  lateMs = LATE,
): Promise<void> {
  const broker = await Broker.start(config);
  const operator = new Human(broker.operator);
  // A test that the runner ends would leave its broker behind.
  const late = new AbortController();
  const tooLate = delay(lateMs, undefined, { signal: late.signal }).then(() => {
    throw new Error(`it takes longer than ${lateMs} ms`);
  });
  try {
    await Promise.race([test(broker, operator), tooLate]);
  } finally {
    late.abort();
    await operator.close();
    await broker.stop();
  }
}

/** Runs `work` while the agents serve, and lets them finish. */
export async function serving<T>(agents: Agent[], work: () => Promise<T>): Promise<T> {
  const tasks = agents.map((agent) => agent.serve());
  try {
    // An agent that ends early fails the test.
    return await Promise.race([work(), Promise.all(tasks).then(() => Promise.reject(new Error("the agents ended")))]);
  } finally {
    for (const agent of agents) agent.stop();
    await Promise.all(tasks);
  }
}

/** What a handler waits for that only the end of its turn ends. */
export function forever(turn: Turn): Promise<never> {
  return new Promise((_, reject) => turn.signal.addEventListener("abort", () => reject(turn.signal.reason)));
}

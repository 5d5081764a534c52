/** What the tests have in common. */

import { type Agent, Human, type Turn } from "../src/index.ts";
import { Broker } from "../src/testing.ts";

/** Runs a test with a broker of its own and a session of its first human. */
export async function withBroker(test: (broker: Broker, operator: Human) => Promise<void>, config = ""): Promise<void> {
  const broker = await Broker.start(config);
  const operator = new Human(broker.operator);
  try {
    await test(broker, operator);
  } finally {
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

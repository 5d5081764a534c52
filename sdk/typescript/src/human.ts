/** The human's side: ask the team, see what waits for a decision, decide. */

import { randomUUID } from "node:crypto";

import { fromEnv } from "./credentials.ts";
import { Disconnected } from "./errors.ts";
import { type Credentials, Session } from "./session.ts";
import { Reply, WAIT } from "./turn.ts";
import type { ApprovalView, Decision, EscalationView, Extend, Extended, SentMessage } from "./wire.ts";

/** A human of the workspace. The session opens with the first call; `close` ends it. */
export class Human implements AsyncDisposable {
  readonly #session: Session;
  #watching = false;
  readonly #watchers = new Set<() => void>();

  constructor(credentials: Credentials) {
    const news = () => this.#watchers.forEach((look) => look());
    const watch = () => {
      // What came while the session was broken has no event for it.
      news();
      return this.#watching ? { events: {} } : undefined;
    };
    this.#session = new Session(credentials, watch, news);
    void this.#session.ended.then(news);
  }

  /** The human whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`. */
  static fromEnv(): Human {
    return new Human(fromEnv());
  }

  async close(): Promise<void> {
    await this.#session.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Asks an agent and waits for the answer. The request grants the work that it causes; without `ref` it is that of a new
   * work item.
   */
  async ask(to: string, text: string, more: { ref?: string; action?: string; payload?: unknown } = {}): Promise<Reply> {
    const body = { type: "request", to, body: text, ...more };
    const key = randomUUID();
    while (true) {
      const sent = await this.#session.call<SentMessage>("send", { key, body, query: { wait: WAIT } });
      if (sent.response !== undefined) return new Reply(sent.response);
    }
  }

  /** Yields each call and each question that waits for a decision, once, until the loop or the session ends. */
  async *watch(): AsyncGenerator<ApprovalView | EscalationView, void, undefined> {
    const seen = new Set<string>();
    let [news, over] = [Promise.withResolvers<void>(), false];
    const look = () => news.resolve();
    this.#watchers.add(look);
    void this.#session.ended.then(() => (over = true));
    try {
      if (!this.#watching) {
        this.#watching = true;
        await this.#session.open();
        this.#session.watchAgain();
      }
      while (!over) {
        news = Promise.withResolvers();
        for (const waiting of [...(await this.approvals()), ...(await this.questions())]) {
          if (seen.has(waiting.id)) continue;
          seen.add(waiting.id);
          yield waiting;
        }
        await news.promise;
      }
    } finally {
      this.#watchers.delete(look);
    }
  }

  /** The calls that wait for a decision. */
  async approvals(): Promise<ApprovalView[]> {
    const page = await this.#session.call<{ items: ApprovalView[] }>("approvals", { again: true });
    return page.items.filter((one) => one.state === "pending");
  }

  /** The questions that wait for an answer. */
  async questions(): Promise<EscalationView[]> {
    const page = await this.#session.call<{ items: EscalationView[] }>("escalations", { again: true });
    return page.items.filter((one) => one.state === "open");
  }

  /** Decides on a held call; `edit` takes the arguments to use instead. */
  decide(
    { id, digest }: ApprovalView,
    decision: Decision,
    { comment, arguments: input }: { comment?: string; arguments?: unknown } = {},
  ): Promise<ApprovalView> {
    return this.#settle("approve", { decision, digest, comment, input }, "approval", id, "pending");
  }

  /** Answers a question. */
  answer({ id }: EscalationView, text: string): Promise<EscalationView> {
    return this.#settle("answer", { answer: text }, "escalation", id, "open");
  }

  /** Answers a question about a limit by one of the lifts that it offers, such as `lift-1`. */
  lift({ id }: EscalationView, lift: string): Promise<EscalationView> {
    return this.#settle("answer", { lift }, "escalation", id, "open");
  }

  /** Stops a conversation, an agent, or everything. */
  stop(what: { ref: string } | { agent: string } | "everything"): Promise<void> {
    return this.#control("stop", what);
  }

  /** Pauses a conversation, an agent, or everything. */
  pause(what: { ref: string } | { agent: string } | "everything"): Promise<void> {
    return this.#control("pause", what);
  }

  /** Resumes a conversation, an agent, or everything. */
  resume(what: { ref: string } | { agent: string } | "everything"): Promise<void> {
    return this.#control("resume", what);
  }

  /** Extends what a conversation may use, such as `{ rounds: 2 }` or `{ cost_usd: 1.5 }`. */
  grant(ref: string, more: Extend): Promise<Extended | undefined> {
    return this.#session.call("grant", { path: ref, body: more });
  }

  /** Decides once. If the connection breaks, looks whether the decision was taken. */
  async #settle<T extends { state: string }>(call: string, body: object, read: string, path: string, waits: string) {
    while (true) {
      try {
        return await this.#session.call<T>(call, { path, body });
      } catch (error) {
        if (!(error instanceof Disconnected)) throw error;
        const found = await this.#session.call<T>(read, { path, again: true });
        if (found.state !== waits) return found;
      }
    }
  }

  async #control(verb: string, what: { ref: string } | { agent: string } | "everything"): Promise<void> {
    if (what === "everything") await this.#session.call(`${verb}_workspace`, { again: true });
    else if ("ref" in what) await this.#session.call(verb, { path: what.ref, again: true });
    else await this.#session.call(`${verb}_agent`, { path: what.agent, again: true });
  }
}

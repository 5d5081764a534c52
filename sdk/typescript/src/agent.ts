/** An agent of the team: its handlers, run for each request, again after a crash. */

import { setTimeout as delay } from "node:timers/promises";

import { fromEnv } from "./credentials.ts";
import { LastwordError, Refused } from "./errors.ts";
import { type Credentials, type Push, Session } from "./session.ts";
import { Turn } from "./turn.ts";
import type { Finish, FinishStatus, StoredMessage } from "./wire.ts";

/** How long open turns may take to finish once the agent is stopped, in milliseconds. */
const GRACE = 30_000;
/** The longest pause between two renewals of a lease, in milliseconds. */
const RENEW_MAX = 60_000;

export interface AnswerOptions {
  payload?: unknown;
  status?: Exclude<FinishStatus, "waiting" | "held">;
  reason?: string;
}

/** An answer with more than a text. */
export class Answer {
  readonly text: string;
  readonly more: AnswerOptions;

  constructor(text: string, more: AnswerOptions = {}) {
    this.text = text;
    this.more = more;
  }
}

/**
 * What a request is answered by. It gets the request's payload, and returns a text, an `Answer`, or any other JSON as
 * the payload of the answer.
 */
export type Handler<P = any> = (turn: Turn, payload: P) => unknown;

/** A schema of any library that implements Standard Schema, such as zod. */
export interface Schema<P> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Checked<P> | Promise<Checked<P>>;
  };
}

type Checked<P> =
  | { readonly value: P; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

export interface HandlerOptions<P = unknown> {
  payload?: Schema<P>;
}

interface Registered {
  handler: Handler;
  schema: Schema<unknown> | undefined;
}

interface Open {
  turn: Turn;
  /** Ends the handler. */
  control: AbortController;
  /** Is aborted once the handler has answered. */
  over: AbortController;
  done: Promise<void>;
}

/** An agent. Handlers are registered with `onRequest`; `run` serves until it is stopped. */
export class Agent {
  readonly #handlers = new Map<string | undefined, Registered>();
  readonly #turns = new Map<string, Open>();
  readonly #stopped = Promise.withResolvers<void>();
  readonly #session: Session;
  #taking = true;

  constructor(credentials: Credentials) {
    const working = () => ({ working: [...this.#turns.keys()] });
    // What is watched is also told at once when a turn is over; a renewal would tell it later.
    const watch = () => (this.#taking ? { deliveries: working() } : {});
    this.#session = new Session(credentials, watch, (push) => this.#pushed(push));
  }

  /** The agent whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`. */
  static fromEnv(): Agent {
    return new Agent(fromEnv());
  }

  /**
   * Registers the handler of requests with this action; without one, that of all others. With a schema of the payload,
   * a request that doesn't match it is answered as failed.
   */
  onRequest<P = any>(action: string, handler: Handler<P>, options?: HandlerOptions<P>): this;
  onRequest<P = any>(handler: Handler<P>, options?: HandlerOptions<P>): this;
  onRequest(first: string | Handler, second?: Handler | HandlerOptions, third?: HandlerOptions): this {
    const [action, handler, options] =
      typeof first === "string" ? [first, second as Handler, third] : [undefined, first, second as HandlerOptions];
    if (this.#handlers.has(action)) {
      throw new Error(action ? `the action ${action} has a handler` : "onRequest(handler) has a handler");
    }
    this.#handlers.set(action, { handler, schema: options?.payload });
    return this;
  }

  /** Serves until SIGINT or SIGTERM. Open turns may finish; those that don't are delivered again. */
  async run(): Promise<void> {
    const stop = () => this.stop();
    process.once("SIGINT", stop).once("SIGTERM", stop);
    try {
      const serving = this.serve();
      void this.#session.open().then(
        () => console.warn(`lastword: the session at ${this.#session.address} is open`),
        () => {}, // `serve` rejects.
      );
      await serving;
    } finally {
      process.off("SIGINT", stop).off("SIGTERM", stop);
    }
  }

  /** Takes no more requests, and ends `serve` once the open turns are finished. */
  stop(): void {
    this.#stopped.resolve();
  }

  /** Serves until `stop`, or until the signal is aborted. Rejects when the token isn't valid, or isn't any more. */
  async serve({ signal, graceMs = GRACE }: { signal?: AbortSignal; graceMs?: number } = {}): Promise<void> {
    const stop = () => this.stop();
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    try {
      await Promise.race([this.#session.open(), this.#stopped.promise]);
      const error = await Promise.race([this.#stopped.promise, this.#session.ended]);
      if (error !== undefined) throw error;
      this.#taking = false;
      this.#session.watchAgain();
      await Promise.race([this.#idle(), delay(graceMs, undefined, { ref: false })]);
    } finally {
      signal?.removeEventListener("abort", stop);
      for (const { control } of this.#turns.values()) control.abort(new LastwordError("the agent stops"));
      // An answer that waits for the broker to come back isn't waited for.
      await this.#session.close();
      await this.#idle();
    }
  }

  async #idle(): Promise<void> {
    await Promise.all([...this.#turns.values()].map((open) => open.done));
  }

  #pushed({ delivery, ended }: Push): void {
    if (ended) {
      const closed = this.#turns.get(ended.turn);
      if (closed?.over.signal.aborted === false) end(closed.turn, closed.control, "its request ended, or its lease");
    }
    if (!delivery?.turn) return;
    const { turn: view, message } = delivery;
    const known = this.#turns.get(view.id);
    if (known !== undefined) return known.turn.joined(message);
    if (!this.#taking) return; // It is delivered again, here or elsewhere.
    const [control, over] = [new AbortController(), new AbortController()];
    const turn = new Turn(this.#session, view, message, control.signal);
    const done = this.#work(turn, control, over)
      .catch((error: unknown) => console.warn(`lastword: the answer of ${turn.id} was not taken: ${String(error)}`))
      .finally(() => this.#turns.delete(turn.id));
    this.#turns.set(turn.id, { turn, control, over, done });
  }

  async #work(turn: Turn, control: AbortController, over: AbortController): Promise<void> {
    const aborted = new Promise<undefined>((resolve) =>
      turn.signal.addEventListener("abort", () => resolve(undefined)),
    );
    void this.#keep(turn, control, over.signal);
    let finish = await Promise.race([this.#answer(turn), aborted]);
    over.abort();
    if (turn.signal.aborted) {
      // Unless the broker wants it ended, it is delivered again if it is still due.
      if (turn.ended === undefined) return;
      finish = { status: "held", reason: `ended by the broker: ${turn.ended}` };
    }
    const send = (body: Finish | undefined) => {
      const usage = turn.usage();
      return this.#session.call("finish", { path: turn.id, body: { ...body, ...(usage && { usage }) }, again: true });
    };
    try {
      await send(finish);
    } catch (error) {
      // An answer that the broker doesn't take, such as one that is too long, still ends the turn.
      if (finish?.status === "failed") throw error;
      await send({ status: "failed", reason: reasonOf(error) });
    }
  }

  async #answer(turn: Turn): Promise<Finish> {
    try {
      const request = await this.#request(turn.message);
      if (request === undefined) return {}; // The answer to work of the agent's own wants none.
      turn.message = request;
      const action = request.action ?? undefined;
      const registered = this.#handlers.get(action) ?? this.#handlers.get(undefined);
      if (registered === undefined) {
        const reason = action ? `no handler for the action ${action}` : "no handler";
        console.warn(`lastword: ${turn.id} is rejected: ${reason}`);
        return { status: "rejected", reason };
      }
      const payload = await checked(registered.schema, turn.message.payload);
      const finish = finishOf(await registered.handler(turn, payload));
      if (finish.answer === "" && finish.payload === undefined) {
        console.warn(`lastword: the handler of ${turn.id} returned nothing: its request fails as empty`);
      }
      return finish;
    } catch (error) {
      const expected = error instanceof LastwordError || error instanceof WrongPayload || turn.signal.aborted;
      if (!expected) console.error(`lastword: the handler of ${turn.id} failed:`, error);
      return { status: "failed", reason: reasonOf(error) };
    }
  }

  /** The request that a turn is about. What opens the turn may be the word that its run goes on, after a lifted limit. */
  async #request(delivered: StoredMessage): Promise<StoredMessage | undefined> {
    let message = delivered;
    while (message.type !== "request" || message.from === delivered.to) {
      const path = message.in_reply_to ?? message.cause;
      if (!path) return undefined;
      message = await this.#session.call<StoredMessage>("message", { path, again: true });
    }
    return message;
  }

  /** Renews the lease while the handler works, and ends it when the broker does. */
  async #keep(turn: Turn, control: AbortController, over: AbortSignal): Promise<void> {
    let deadline = Date.parse(turn.view.deadline);
    let tooSoon: number | undefined;
    let counted = new AbortController();
    turn.onCounted = () => counted.abort();
    while (true) {
      // This clock may be wrong: not later than in a minute. What is spent is told at once: it may end the turn.
      const pause = tooSoon ?? Math.min(Math.max((deadline - Date.now()) / 3, 1000), RENEW_MAX);
      try {
        await delay(pause, undefined, { signal: AbortSignal.any([over, counted.signal]) }).catch(() => undefined);
        if (over.aborted) return;
        tooSoon = undefined;
        counted = new AbortController();
        const renewed = await turn.renew();
        deadline = Date.parse(renewed.deadline);
        if (!renewed.end) continue;
        turn.ended = renewed.end;
        return end(turn, control, renewed.end);
      } catch (error) {
        if (over.aborted || turn.signal.aborted) return;
        // A refusal that passes says nothing of the turn: two reports may follow each other too soon.
        tooSoon = error instanceof Refused ? error.retryAfter : undefined;
        if (tooSoon !== undefined) continue;
        return end(turn, control, error instanceof Error ? error.message : String(error));
      }
    }
  }
}

function end(turn: Turn, control: AbortController, why: string): void {
  control.abort(new LastwordError(`${turn.id} is over: ${why}`));
}

class WrongPayload extends Error {}

async function checked(schema: Schema<unknown> | undefined, payload: unknown): Promise<unknown> {
  if (schema === undefined) return payload;
  const result = await schema["~standard"].validate(payload);
  if (result.issues === undefined) return result.value;
  const name = (part: unknown) => String(typeof part === "object" ? (part as { key: unknown } | null)?.key : part);
  const issues = result.issues.map(({ message, path = [] }) =>
    [["payload", ...path.map(name)].join("."), message].join(": "),
  );
  throw new WrongPayload(issues.join("; "));
}

function finishOf(result: unknown): Finish {
  if (result instanceof Answer) return { answer: result.text, status: "completed", ...result.more };
  if (result === undefined || typeof result === "string") return { answer: result ?? "", status: "completed" };
  if (JSON.stringify(result) === undefined) {
    throw new TypeError(`an answer is a text, an Answer or JSON, not a ${typeof result}`);
  }
  return { payload: result, status: "completed" };
}

function reasonOf(error: unknown): string {
  if (error instanceof Refused) return error.modelHint();
  if (error instanceof WrongPayload) return error.message;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

/** A turn: one request that an agent works on, and what its handler may ask for meanwhile. */

import { setTimeout as delay } from "node:timers/promises";

import { Disconnected, LastwordError, NotDeterministic, Refused, Rejected } from "./errors.ts";
import type { CallOptions, Session } from "./session.ts";
import type * as wire from "./wire.ts";

/** The longest wait of one call. What takes longer is asked for again. */
export const WAIT = "5m";
/** How often a turn looks whether its question was answered, beside being told, in milliseconds. */
const LOOK = 30_000;

/** The open turn, and the steps that earlier runs of its handler recorded. */
export type TurnView = wire.TurnView & { steps?: { key: string; result: unknown }[] };

/** The answer to a request. */
export class Reply {
  readonly message: wire.StoredMessage;

  constructor(message: wire.StoredMessage) {
    this.message = message;
  }

  /** What it says. */
  get text(): string {
    return this.message.body;
  }

  /** Its structured content; `undefined` if it has none. */
  get payload(): unknown {
    return this.message.payload;
  }

  /** `completed`, `partial`, `rejected`, `failed`, `timed_out`, `exhausted` or `cancelled`. */
  get status(): wire.AnswerStatus {
    return this.message.status ?? "completed";
  }

  /** Whether it is no answer to build on. */
  get failed(): boolean {
    return this.status !== "completed" && this.status !== "partial";
  }
}

/** A call that may be made now, once. */
export interface Approved {
  approval: wire.ApprovalView;
  /** The arguments to use: as asked, or as a human edited them. */
  arguments: unknown;
  /** Whether an earlier run of this handler has used the approval: it may have made the call already. */
  repeated: boolean;
}

/** A resource that is held until it is released, also by `await using`. */
export interface Claim extends AsyncDisposable {
  view: wire.ClaimView;
  release(): Promise<void>;
}

export interface AskOptions {
  action?: string | undefined;
  payload?: unknown;
  ref?: string | undefined;
  /** How long the answer may take. */
  deadlineMs?: number | undefined;
}

export interface ClaimOptions {
  /** Whether other shared claims may hold it, too. */
  shared?: boolean | undefined;
}

/** What a call of a model used. */
export interface Spent {
  /** Tokens that the model read, including those from and for a cache. */
  inputTokens?: number | undefined;
  outputTokens?: number | undefined;
  cacheReadTokens?: number | undefined;
  cacheWriteTokens?: number | undefined;
  model?: string | undefined;
  costUsd?: number | undefined;
}

/**
 * The open turn of a handler.
 *
 * Each call that changes something has a key: the request's id and the place of the call in the handler. A handler that
 * runs again, after a crash or a lost lease, makes the same calls in the same order and gets the results that it had.
 */
export class Turn {
  readonly view: TurnView;
  /** The request that the turn works on. */
  message: wire.StoredMessage;
  /** Is aborted when the broker ends the turn, or the agent stops. Calls through the turn reject from then on. */
  readonly signal: AbortSignal;
  /** Why the broker ended the turn, such as `budget`, if a renewal told it. */
  ended: string | undefined;
  readonly #session: Session;
  readonly #aborted: Promise<never>;
  readonly #answers = new Map<string, PromiseWithResolvers<void>>();
  readonly #usage: wire.Usage = { input_tokens: 0, output_tokens: 0 };
  readonly #models = new Map<string, wire.ModelUsage>();
  #place = 0;
  /** Told when something was counted. */
  onCounted: () => void = () => {};

  constructor(session: Session, view: TurnView, message: wire.StoredMessage, signal: AbortSignal) {
    this.#session = session;
    this.view = view;
    this.message = message;
    this.signal = signal;
    this.#aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    this.#aborted.catch(() => {}); // Who waits for a call is told.
  }

  /** The turn, such as `turn-3`. */
  get id(): string {
    return this.view.id;
  }

  /** What the request says. */
  get text(): string {
    return this.message.body;
  }

  /** Who asks. */
  get sender(): string {
    return this.message.from;
  }

  /** Asks another agent (`kilo`, `@group`, `#action`) and waits for the answer. */
  async ask(to: string, text = "", { deadlineMs, ...more }: AskOptions = {}): Promise<Reply> {
    const body = { type: "request", to, body: text, deadline_ms: deadlineMs, ...more };
    const key = this.#key("ask");
    while (true) {
      const sent = await this.#durable<wire.SentMessage>("send", key, body, { query: { wait: WAIT } });
      if (sent.response !== undefined) return new Reply(sent.response);
    }
  }

  /**
   * Asks a human and waits for the answer, a text of their own or one of the options. A question that nobody answers
   * within `escalation_ms`, by default a week, ends the request.
   */
  async escalate(question: string, { options }: { options?: string[] | undefined } = {}): Promise<string> {
    let asked = await this.#durable<wire.EscalationView>("escalate", this.#key("escalate"), {
      message: question,
      options,
    });
    while (asked.state === "open") {
      const looking = new AbortController();
      const look = delay(LOOK, undefined, { signal: looking.signal }).catch(() => {});
      const told = this.#answer(asked.id).promise;
      await this.#within(() => Promise.race([told, look])).finally(() => looking.abort());
      this.#answers.delete(asked.id);
      asked = await this.#call("escalation", { path: asked.id, again: true });
    }
    if (asked.state !== "answered") throw new LastwordError(`${asked.id} has no answer: it is ${asked.state}`);
    return asked.answer ?? "";
  }

  /**
   * Holds a call for a human's decision. Returns once it may be made, also with edited arguments; throws `Rejected` if
   * it may not.
   */
  async approve(tool: string, args: unknown = {}, { reason }: { reason?: string | undefined } = {}): Promise<Approved> {
    const body = { tool, arguments: args, reason };
    let approval = await this.#durable<wire.ApprovalView>("request_approval", this.#key("approve"), body, {
      exact: true,
    });
    const path = approval.id;
    while (approval.state === "pending") {
      approval = await this.#call("approval", { path, query: { wait: WAIT }, again: true, exact: true });
    }
    const repeated = approval.state === "used";
    while (approval.state === "approved") {
      const use = { tool: approval.tool, arguments: approval.arguments };
      try {
        approval = await this.#call("use_approval", { path, turn: this.view.token, body: use, exact: true });
      } catch (error) {
        if (!(error instanceof Disconnected)) throw error;
        // If it is used now, this run has used it.
        approval = await this.#call("approval", { path, again: true, exact: true });
      }
    }
    if (approval.state !== "used") throw new Rejected(approval);
    return { approval, arguments: approval.arguments, repeated };
  }

  /** Holds a resource until it is released, or while `work` runs. `Refused` with the code `claim_held` names who has it. */
  claim(resource: string, options?: ClaimOptions): Promise<Claim>;
  claim<T>(resource: string, work: (claim: Claim) => T | Promise<T>, options?: ClaimOptions): Promise<T>;
  async claim<T>(
    resource: string,
    workOrOptions: ((claim: Claim) => T | Promise<T>) | ClaimOptions = {},
    options: ClaimOptions = {},
  ): Promise<Claim | T> {
    const work = typeof workOrOptions === "function" ? workOrOptions : undefined;
    const { shared } = typeof workOrOptions === "function" ? options : workOrOptions;
    const view = await this.#claimed(this.#key("claim"), { resource, mode: shared ? "shared" : "exclusive" });
    const release = async () => {
      try {
        await this.#session.call("release", { path: view.id, again: true });
      } catch (error) {
        // The end of the turn releases it in any case.
        if (!(error instanceof LastwordError)) throw error;
      }
    };
    const claim: Claim = { view, release, [Symbol.asyncDispose]: release };
    return work === undefined ? claim : Promise.resolve(work(claim)).finally(release);
  }

  /**
   * Runs `work` and records its result, any JSON: a run after a crash gets the recorded one. A step that fails, or that
   * a crash interrupts, runs again. All results of a request take at most 256 KiB.
   */
  async step<T>(name: string, work: () => T | Promise<T>): Promise<T> {
    const place = this.#take();
    const key = `${place}.${encodeURIComponent(name)}`;
    const recorded = this.#recorded(place);
    if (recorded !== undefined && recorded.key !== key) throw this.#another(place, `step ${name}`);
    if (recorded !== undefined) return recorded.result as T;
    // Each run gets what JSON keeps of it.
    const result = JSON.parse(JSON.stringify((await this.#within(async () => work())) ?? null)) as T;
    await this.#call("progress", { path: this.id, body: { step: { key, result } }, again: true });
    return result;
  }

  /** Tells humans what the turn does now. A note that follows another one too soon is left out. */
  async progress(note: string): Promise<void> {
    try {
      await this.renew(note);
    } catch (error) {
      if (!(error instanceof Refused && error.code === "sender_rate")) throw error;
    }
  }

  /**
   * Counts what a call of a model used. It is reported at once, and with the answer. `inputTokens` includes
   * `cacheReadTokens` and `cacheWriteTokens`.
   */
  spent({ inputTokens = 0, outputTokens = 0, cacheReadTokens, cacheWriteTokens, model, costUsd }: Spent): void {
    const add = (count: number | null | undefined, more: number | undefined) => (count ?? 0) + (more ?? 0);
    const usage = this.#usage;
    usage.input_tokens = add(usage.input_tokens, inputTokens);
    usage.output_tokens = add(usage.output_tokens, outputTokens);
    if (cacheReadTokens) usage.cache_read_tokens = add(usage.cache_read_tokens, cacheReadTokens);
    if (cacheWriteTokens) usage.cache_write_tokens = add(usage.cache_write_tokens, cacheWriteTokens);
    if (costUsd !== undefined) usage.cost_usd = add(usage.cost_usd, costUsd);
    this.onCounted();
    if (model === undefined) return;
    model = model.slice(0, 64).trim();
    const part = this.#models.get(model) ?? { model, tokens: 0 };
    part.tokens += inputTokens + outputTokens;
    if (costUsd !== undefined) part.cost_usd = add(part.cost_usd, costUsd);
    // A report has no more; the rest counts for no model.
    usage.models = [...this.#models.set(model, part).values()].slice(0, 8);
  }

  /** What the turn used so far; `undefined` if nothing was counted. */
  usage(): wire.Usage | undefined {
    const { input_tokens, output_tokens, cost_usd } = this.#usage;
    return input_tokens || output_tokens || cost_usd ? this.#usage : undefined;
  }

  /** The agents of the workspace. */
  async agents(): Promise<wire.AgentView[]> {
    return (await this.#call<wire.AgentViewPage>("agents", { again: true })).items;
  }

  /** Takes in an answer that the broker pushed into the turn. */
  joined(message: wire.StoredMessage): void {
    if (message.escalation) this.#answer(message.escalation).resolve();
  }

  /** Renews the lease, and reports what was spent. The agent does so by itself. */
  renew(note = ""): Promise<wire.Renewed> {
    return this.#call("progress", { path: this.id, body: { note, usage: this.usage() }, again: true });
  }

  #answer(escalation: string): PromiseWithResolvers<void> {
    const answer = this.#answers.get(escalation) ?? Promise.withResolvers<void>();
    this.#answers.set(escalation, answer);
    return answer;
  }

  /** Claims under the key, or anew if an earlier run has released it: what the work does isn't all durable. */
  async #claimed(key: string, body: unknown): Promise<wire.ClaimView> {
    for (let again = 0; ; again += 1) {
      try {
        return await this.#durable("claim", again ? `${key}.${again}` : key, body);
      } catch (error) {
        if (!(error instanceof Refused && error.code === "unknown_request")) throw error;
      }
    }
  }

  #take(): number {
    this.signal.throwIfAborted();
    this.#place += 1;
    return this.#place;
  }

  #key(call: string): string {
    const place = this.#take();
    if (this.#recorded(place) !== undefined) throw this.#another(place, call);
    return `${this.message.id}.${place}`;
  }

  #recorded(place: number): { key: string; result: unknown } | undefined {
    return this.view.steps?.find((step) => step.key.startsWith(`${place}.`));
  }

  #another(place: number | string, call: string, cause?: unknown): NotDeterministic {
    return new NotDeterministic(
      `call ${place} of the handler for ${this.message.id} is another than in its first run (${call}): a handler makes ` +
        "the same calls in the same order when it runs again",
      { cause },
    );
  }

  async #durable<T>(call: string, key: string, body: unknown, more: CallOptions = {}): Promise<T> {
    try {
      return await this.#call<T>(call, { key, turn: this.view.token, body, ...more });
    } catch (error) {
      if (!(error instanceof Refused && error.code === "idempotency_conflict")) throw error;
      throw this.#another(key.slice(this.message.id.length + 1), call, error);
    }
  }

  #call<T>(call: string, options: CallOptions): Promise<T> {
    return this.#within(() => this.#session.call<T>(call, options));
  }

  /** Rejects when the turn ends, whatever it waits for. */
  async #within<T>(work: () => Promise<T>): Promise<T> {
    this.signal.throwIfAborted();
    return Promise.race([work(), this.#aborted]);
  }
}

/** One WebSocket that carries every call and what the broker pushes. It connects again by itself. */

import { setTimeout as delay } from "node:timers/promises";
import { debuglog } from "node:util";

import { Disconnected, LastwordError, Refused } from "./errors.ts";
import { parse, stringify } from "./numbers.ts";
import type { Delivery, Event as BrokerEvent, Problem } from "./wire.ts";

const log = debuglog("lastword");

const SUBPROTOCOL = "lastword.v1";
/** Milliseconds between two attempts to connect; each is twice the one before. */
const [PAUSE_MIN, PAUSE_MAX] = [200, 15_000];
/** How often a session asks for a sign of life, in milliseconds. */
const BEAT = 20_000;
/** The beats without an answer after which a connection counts as broken. A busy event loop may miss one. */
const SILENT_BEATS_MAX = 2;
/** The longest frame that the broker reads. It ends the session over a longer one. */
const FRAME_BYTES_MAX = 656 << 10;
/** The most calls that wait in the broker. It reads no frames beyond 256 of them, not even a renewal. */
const WAITING_MAX = 200;

/** Where a broker is, and who calls. */
export interface Credentials {
  url: string;
  token: string;
}

/** The members of a call; docs/sessions.md has them. */
export interface CallOptions {
  path?: string;
  query?: Record<string, unknown>;
  key?: string;
  turn?: string;
  body?: unknown;
  /** Whether the call is made again when the connection breaks before its reply; by default if it has a key. */
  again?: boolean;
  /** Whether numbers stay as they were written, in the call and in its result. */
  exact?: boolean;
}

/** What the broker pushes. */
export interface Push {
  delivery?: Delivery;
  /** A turn that is over, other than by its `finish`. */
  ended?: { turn: string };
  event?: BrokerEvent;
}

interface Frame extends Push {
  id?: number;
  body?: unknown;
  problem?: Problem;
}

interface Pending {
  text: string;
  again: boolean;
  exact: boolean;
  waits: boolean;
  sent: boolean;
  reply: PromiseWithResolvers<unknown>;
}

/** A session of one agent or human. It opens with the first call. */
export class Session {
  readonly address: string;
  readonly #token: string;
  readonly #watch: () => unknown;
  readonly #pushed: (push: Push) => void;
  readonly #calls = new Map<number, Pending>();
  readonly #opened = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<LastwordError>();
  readonly #closing = new AbortController();
  #last = 0;
  #socket: WebSocket | undefined;
  #over: LastwordError | undefined;
  #living: Promise<void> | undefined;

  /** `watch` returns the body of the `watch` call of each new connection. */
  constructor(
    { url, token }: Credentials,
    watch: () => unknown = () => undefined,
    pushed: (push: Push) => void = () => {},
  ) {
    if (!/^https?:\/\//.test(url)) throw new LastwordError(`the address ${url} has no http:// or https:// before it`);
    this.address = `${url.replace(/\/+$/, "").replace(/^http/, "ws")}/v1/session`;
    this.#token = token;
    this.#watch = watch;
    this.#pushed = pushed;
    this.#opened.promise.catch(() => {}); // The calls are told.
  }

  /** Why there will be no further connection: it was closed, or the token isn't valid. */
  get ended(): Promise<LastwordError> {
    return this.#end.promise;
  }

  /** Opens the session; rejects if the broker refuses it. */
  open(): Promise<void> {
    this.#living ??= this.#live();
    return this.#opened.promise;
  }

  async close(): Promise<void> {
    this.#finish(new LastwordError("the session is closed"));
    await this.#living;
  }

  /**
   * Makes a call and returns its result; `undefined` if it has none.
   *
   * A call that is broken off is made again where that is safe: with a key, or with `again`. Any other rejects with
   * `Disconnected`.
   */
  async call<T>(call: string, { again, exact = false, ...members }: CallOptions = {}): Promise<T> {
    if (this.#over !== undefined) throw this.#over;
    const number = ++this.#last;
    const text = (exact ? stringify : JSON.stringify)({ id: number, call, ...members });
    const bytes = Buffer.byteLength(text);
    if (bytes > FRAME_BYTES_MAX)
      throw new LastwordError(`${call}: ${bytes} bytes; a call has at most ${FRAME_BYTES_MAX}`);
    const made: Pending = {
      text,
      again: again ?? members.key !== undefined,
      exact,
      waits: members.query?.["wait"] !== undefined,
      sent: false,
      reply: Promise.withResolvers(),
    };
    this.#calls.set(number, made);
    void this.open();
    this.#send();
    try {
      return (await made.reply.promise) as T;
    } finally {
      this.#calls.delete(number);
      if (made.waits) this.#send();
    }
  }

  /** Says anew what is to be pushed. */
  watchAgain(): void {
    const body = this.#watch();
    if (body !== undefined) this.#socket?.send(JSON.stringify({ id: ++this.#last, call: "watch", body }));
  }

  /** Sends what is not sent yet. A break is noticed where the session reads. */
  #send(): void {
    if (this.#socket === undefined) return;
    let room = WAITING_MAX;
    for (const call of this.#calls.values()) if (call.waits && call.sent) room -= 1;
    for (const call of this.#calls.values()) {
      if (call.sent || (call.waits && room-- <= 0)) continue;
      call.sent = true;
      this.#socket.send(call.text);
    }
  }

  async #live(): Promise<void> {
    let [pause, warned] = [PAUSE_MIN, false];
    while (this.#over === undefined) {
      if (await this.#connection(warned)) [pause, warned] = [PAUSE_MIN, false];
      else if (!warned && this.#over === undefined) {
        console.warn(`lastword: no session at ${this.address}; it is tried again`);
        warned = true;
      }
      for (const call of this.#calls.values()) {
        if (call.sent && !call.again) call.reply.reject(new Disconnected("the session broke before the reply came"));
        call.sent = false;
      }
      const signal = this.#closing.signal;
      await delay(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
      pause = Math.min(2 * pause, PAUSE_MAX);
    }
  }

  /** Serves one connection to its end; returns whether the broker accepted the session. */
  #connection(warned: boolean): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = new WebSocket(this.address, [SUBPROTOCOL]);
      let [silent, accepted] = [0, false];
      const beat = setInterval(() => {
        silent += 1;
        if (silent > SILENT_BEATS_MAX) over();
        // A client of this kind can't ping; this acknowledges nothing.
        else if (accepted) socket.send(JSON.stringify({ id: ++this.#last, call: "ack", body: { cursor: 0 } }));
      }, BEAT);
      const over = () => {
        clearInterval(beat);
        this.#closing.signal.removeEventListener("abort", over);
        this.#socket = undefined;
        socket.onmessage = socket.onclose = socket.onerror = null;
        socket.close();
        resolve(accepted);
      };
      this.#closing.signal.addEventListener("abort", over);
      // A header can't be set: the token goes into the first frame.
      socket.onopen = () =>
        socket.send(JSON.stringify({ id: ++this.#last, call: "hello", body: { token: this.#token } }));
      socket.onerror = over;
      socket.onclose = ({ code, reason }) => {
        log("the session ended: %d %s", code, reason);
        if (code === 1008 && reason.includes("token")) this.#finish(new LastwordError(reason));
        over();
      };
      socket.onmessage = ({ data }) => {
        silent = 0;
        const frame = JSON.parse(data as string) as Frame;
        if (accepted) return this.#hear(frame, data as string);
        if (frame.problem !== undefined) return this.#refused(frame.problem);
        accepted = true;
        if (warned) console.warn(`lastword: the session at ${this.address} is open again`);
        this.#socket = socket;
        this.watchAgain();
        this.#send();
        this.#opened.resolve();
      };
    });
  }

  #refused(problem: Problem): void {
    // Whatever else it is, such as too many sessions, passes.
    if ([400, 401, 403].includes(problem.status)) this.#finish(new Refused(problem));
  }

  #hear(frame: Frame, text: string): void {
    if (frame.id === undefined) return this.#pushed(frame);
    const call = this.#calls.get(frame.id);
    if (frame.problem === undefined) call?.reply.resolve(call.exact ? (parse(text) as Frame).body : frame.body);
    else if (call !== undefined) call.reply.reject(new Refused(frame.problem));
    else console.warn(`lastword: the broker refuses: ${frame.problem.detail}`);
  }

  #finish(error: LastwordError): void {
    if (this.#over !== undefined) return;
    this.#over = error;
    this.#opened.reject(error);
    this.#end.resolve(error);
    for (const call of this.#calls.values()) call.reply.reject(error);
    this.#closing.abort();
  }
}

/** Single calls over HTTP, for scripts. */

import { fromEnv } from "./credentials.ts";
import { LastwordError, Refused } from "./errors.ts";
import type { Credentials } from "./session.ts";
import type { paths, Problem } from "./wire.ts";

type Method = "GET" | "POST" | "PATCH" | "DELETE";
/** The paths of the OpenAPI document that have this method, without `/v1`. */
type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<Lowercase<M>, object>
    ? P extends `/v1${infer Path}`
      ? Path
      : never
    : never;
}[keyof paths];
type Operation<M extends Method, P extends string> = `/v1${P}` extends keyof paths
  ? paths[`/v1${P}`] extends Record<Lowercase<M>, infer O>
    ? O
    : never
  : never;
type Json<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Result<O> = O extends { responses: infer R }
  ? Json<R[keyof R]> extends never
    ? undefined
    : Json<R[keyof R]>
  : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Exclude<Q, undefined> : never;
type PathParts<O> = O extends { parameters: { path: infer P } } ? { path: P } : { path?: never };
type Body<O> = O extends { requestBody?: infer B }
  ? Exclude<B, undefined> extends { content: { "application/json": infer T } }
    ? T
    : never
  : never;

/** The members of a call: the parts of its path, its query, its body and its idempotency key. */
export type Members<O> = PathParts<O> & { query?: Query<O>; body?: Body<O>; key?: string; signal?: AbortSignal };

interface Loose {
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  body?: unknown;
  key?: string;
  signal?: AbortSignal;
}

/** Calls of `/v1`, as the OpenAPI document of the server has them. */
export class Client {
  readonly #url: string;
  readonly #token: string;

  constructor({ url, token }: Credentials) {
    this.#url = `${url.replace(/\/+$/, "")}/v1`;
    this.#token = token;
  }

  /** The agent or human whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`. */
  static fromEnv(): Client {
    return new Client(fromEnv());
  }

  /**
   * Makes a call: `call("POST", "/agents/{name}/stop", { path: { name: "kilo" } })`. Returns its result; `undefined` if
   * it has none. `fetch` waits five minutes at most: a call's own `wait` is to be shorter.
   */
  async call<M extends Method, P extends PathOf<M>>(
    method: M,
    path: P,
    ...[members]: PathParts<Operation<M, P>> extends { path: object }
      ? [Members<Operation<M, P>>]
      : [Members<Operation<M, P>>?]
  ): Promise<Result<Operation<M, P>>> {
    const { path: parts = {}, query = {}, body, key, signal } = (members ?? {}) as Loose;
    const address = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(parts[name] ?? ""));
    const search = new URLSearchParams(
      Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
    );
    const answer = await fetch(`${this.#url}${address}?${search}`, {
      method,
      headers: {
        Authorization: `Bearer ${this.#token}`,
        ...(key !== undefined && { "Idempotency-Key": key }),
        ...(body !== undefined && { "Content-Type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
    const text = await answer.text();
    if (!answer.ok) {
      const isProblem = answer.headers.get("Content-Type")?.includes("problem+json");
      throw isProblem ? new Refused(JSON.parse(text) as Problem) : new LastwordError(`${answer.status}: ${text}`);
    }
    return (text ? JSON.parse(text) : undefined) as Result<Operation<M, P>>;
  }
}

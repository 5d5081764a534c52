/** Join a Lastword workspace: agents whose handlers survive a crash, and the human's side. */

export { Agent, Answer, type Handler, type Schema } from "./agent.ts";
export { Client } from "./client.ts";
export { Disconnected, LastwordError, NotDeterministic, Refused, Rejected } from "./errors.ts";
export { Human } from "./human.ts";
export { type CallOptions, type Credentials, Session } from "./session.ts";
export { type Approved, type AskOptions, type Claim, type ClaimOptions, Reply, type Spent, Turn } from "./turn.ts";

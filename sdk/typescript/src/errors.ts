/** What goes wrong, by who has to act: the caller, a human, or nobody but time. */

import type { ApprovalView, LiftStep, Problem } from "./wire.ts";

/** Any error of this package. */
export class LastwordError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The connection broke before the reply came. Whether the call was carried out isn't known. */
export class Disconnected extends LastwordError {}

/** A handler that runs again asked for something else than the first time, at the same place. */
export class NotDeterministic extends LastwordError {}

/** The broker refused a call. */
export class Refused extends LastwordError {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`${problem.detail} (${problem.code})`);
    this.problem = problem;
  }

  /** The stable code, such as `depth_cap`. */
  get code(): Problem["code"] {
    return this.problem.code;
  }

  /** The rule that the code enforces, such as `D2`. */
  get rule(): string {
    return this.problem.rule;
  }

  /** What to do instead, in one sentence. */
  get hint(): string {
    return this.problem.hint;
  }

  /** The step by which a human lifts it, if there is one. */
  get lift(): LiftStep | undefined {
    return this.problem.lift ?? undefined;
  }

  /** Milliseconds after which a retry may succeed; `undefined` if waiting doesn't help. */
  get retryAfter(): number | undefined {
    return this.problem.retry_after_ms ?? undefined;
  }

  /** The refusal as a tool result for a model: what was wrong, and what to do. */
  modelHint(): string {
    return `Refused (${this.code}): ${this.problem.detail}. ${this.hint}`;
  }
}

/** A held call may not be made: a human said no, or nobody decided in time. */
export class Rejected extends LastwordError {
  readonly approval: ApprovalView;

  constructor(approval: ApprovalView) {
    super(`${approval.tool}: ${approval.state}${approval.comment ? `: ${approval.comment}` : ""}`);
    this.approval = approval;
  }

  /** `rejected`, `expired`, `ignored` or `withdrawn`. */
  get state(): ApprovalView["state"] {
    return this.approval.state;
  }

  /** What the human wrote for the agent. */
  get comment(): string | undefined {
    return this.approval.comment ?? undefined;
  }

  /** The decision as a tool result for a model. */
  modelHint(): string {
    // As a string of JSON, the comment can't pass for what stands around it.
    const comment = this.comment ? ` The comment of who decided: ${JSON.stringify(this.comment)}` : "";
    return `The call of ${this.approval.tool} was not made (${this.state}).${comment}`;
  }
}

/**
 * JSON whose numbers stay as they were written. The broker compares the arguments of a held call digit by digit: to it
 * 1.50, as a human may write it, isn't the 1.5 that JavaScript makes of it.
 */

import { LastwordError } from "./errors.ts";

/** The numbers that JavaScript would write otherwise, by the object and the member that they are in. */
const written = new WeakMap<object, Map<string, string>>();

export function parse(text: string): unknown {
  return JSON.parse(text, keep as (this: unknown, key: string, value: unknown) => unknown);
}

/** Throws if a number has more digits than one of JavaScript: who reads the value doesn't see what it says. */
export function stringify(value: unknown): string {
  return JSON.stringify(value, function (this: object, key, value: unknown) {
    const source = written.get(this)?.get(key);
    if (source === undefined || Number(source) !== value) return value;
    if (digits(source) !== digits(String(value))) {
      throw new LastwordError(`\`${key}\` is ${source}, which no number of JavaScript holds`);
    }
    return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(source);
  });
}

function keep(this: object, key: string, value: unknown, { source }: { source?: string } = {}): unknown {
  if (typeof value === "number" && source !== undefined && String(value) !== source) {
    written.set(this, (written.get(this) ?? new Map<string, string>()).set(key, source));
  }
  return value;
}

/** The digits that a number has, without those that only place its point. */
function digits(number: string): string {
  return number
    .replace(/e.*/i, "")
    .replace(/\D/g, "")
    .replace(/^0+|0+$/g, "");
}

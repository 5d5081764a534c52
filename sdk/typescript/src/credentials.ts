/** Where the broker is, and who calls: from the environment. */

import { readFileSync } from "node:fs";

import { LastwordError } from "./errors.ts";
import type { Credentials } from "./session.ts";

const DEFAULT_URL = "http://127.0.0.1:7171";

/** From `LASTWORD_URL`, and `LASTWORD_TOKEN` or `LASTWORD_TOKEN_FILE`. */
export function fromEnv(): Credentials {
  const { LASTWORD_URL, LASTWORD_TOKEN, LASTWORD_TOKEN_FILE } = process.env;
  const token = LASTWORD_TOKEN || (LASTWORD_TOKEN_FILE && readFileSync(LASTWORD_TOKEN_FILE, "utf8").trim());
  if (!token && LASTWORD_TOKEN_FILE) {
    throw new LastwordError(
      `LASTWORD_TOKEN_FILE: ${LASTWORD_TOKEN_FILE} is empty: \`lastword agent add NAME\` prints a token`,
    );
  }
  if (!token) {
    throw new LastwordError(
      "no token: set LASTWORD_TOKEN or LASTWORD_TOKEN_FILE; `lastword agent add NAME` prints one",
    );
  }
  return { url: LASTWORD_URL || DEFAULT_URL, token: token.trim() };
}

#!/usr/bin/env node
// Runs the program of this platform's package, with its signals and its exit code.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const name = `@lastword/cli-${process.platform}-${process.arch}`;
let program;
try {
  program = createRequire(import.meta.url).resolve(`${name}/lastword`);
} catch {
  console.error(
    `lastword: ${name} isn't installed. npm leaves it out with --omit=optional, and there is none for some platforms:\n` +
      "build the program from a clone of the repository with `cargo install --path cli --features cluster,discord`",
  );
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both: this one only waits. What is sent to this one alone is passed on.
process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"));
for (const signal of ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`lastword: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  // The same end, for a caller that looks; 128 and the number where it is ignored.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  setTimeout(() => process.exit(128 + constants.signals[signal]), 100);
});

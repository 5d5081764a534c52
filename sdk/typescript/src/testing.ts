/** A broker for tests: the program on a free port, in a directory of its own. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Client } from "./client.ts";
import { LastwordError } from "./errors.ts";
import type { Credentials } from "./session.ts";
import type { NewAgent } from "./wire.ts";

/** A running broker, until `stop`. `LASTWORD_PROGRAM` names the program, otherwise it is found by `PATH`. */
export class Broker implements AsyncDisposable {
  /** The first human. */
  operator: Credentials = { url: "", token: "" };
  readonly #program: string;
  readonly #directory: string;
  #process: ChildProcess | undefined;
  #address = "127.0.0.1:0";

  private constructor(program: string, directory: string) {
    this.#program = program;
    this.#directory = directory;
  }

  /** Starts a broker with this configuration, the text of a `lastword.toml`. */
  static async start(config = "", program = process.env["LASTWORD_PROGRAM"] ?? "lastword"): Promise<Broker> {
    const broker = new Broker(program, await mkdtemp(join(tmpdir(), "lastword-")));
    await writeFile(join(broker.#directory, "lastword.toml"), config);
    await broker.start();
    return broker;
  }

  /** Starts the program again, at the address that it had before. */
  async start(): Promise<void> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("LASTWORD_")));
    const child = spawn(this.#program, ["serve", "--listen", this.#address, "--json"], {
      cwd: this.#directory,
      env,
      stdio: ["ignore", "pipe", "ignore"],
    });
    const end = () => child.kill("SIGKILL");
    process.once("exit", end); // A test that fails leaves no broker behind.
    const exited = new Promise<string>((resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", () => resolve(`it ended at once, in ${this.#directory}`));
    });
    void exited.then(() => process.off("exit", end));
    const line = await Promise.race([once(createInterface(child.stdout), "line"), exited]);
    if (typeof line === "string") throw new LastwordError(`the broker did not start: ${line}`);
    this.#process = child;
    const first = JSON.parse(line[0] as string) as { listening: string; operator_token_file: string };
    this.#address = first.listening.replace("http://", "");
    const token = await readFile(join(this.#directory, first.operator_token_file), "utf8");
    this.operator = { url: first.listening, token: token.trim() };
  }

  /** Ends the program without warning (SIGKILL). */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Ends the program and removes its directory. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.#directory, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** The first human, for single calls. */
  human(): Client {
    return new Client(this.operator);
  }

  /** Registers an agent. */
  async agent(name: string, more: Partial<NewAgent> = {}): Promise<Credentials> {
    const { token } = await this.human().call("POST", "/agents", { body: { name, ...more } });
    return { url: this.operator.url, token };
  }

  async #end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, "exit");
  }
}

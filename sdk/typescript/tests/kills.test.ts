/** Processes that are killed in the middle of a handler, with the broker now and then. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Agent } from "../src/index.ts";
import { serving, withBroker } from "./running.ts";

/** A campaign of its own: LASTWORD_SDK_KILLS=200. */
const KILLS = Number(process.env["LASTWORD_SDK_KILLS"] ?? 0);
/** A campaign sends more in a minute than a team. */
const LIMITS = "[limits]\npair_messages_max = 1000000\nsender_messages_max = 1000000\n";
const HANDLER = fileURLToPath(new URL("six_steps.ts", import.meta.url));

const skip = KILLS === 0 && "a campaign: LASTWORD_SDK_KILLS says how long";

test("a handler that is killed at any moment does each step once", { skip }, () =>
  withBroker(
    async (broker, operator) => {
      const { url, token } = await broker.agent("kilo");
      const env = { ...process.env, LASTWORD_URL: url, LASTWORD_TOKEN: token };
      const other = new Agent(await broker.agent("other"));
      const [served, decided]: [string[], string[]] = [[], []];
      other.onRequest(async (turn) => {
        served.push(turn.text);
        await delay(50); // It is killed meanwhile, too.
        return `${turn.text}.`;
      });
      const decide = async () => {
        for await (const waiting of operator.watch()) {
          decided.push(waiting.id);
          await delay(50);
          if ("tool" in waiting) await operator.decide(waiting, "approve");
          else await operator.answer(waiting, "yes");
        }
      };
      let [killed, task] = [0, 0];
      const campaign = async () => {
        while (killed < KILLS) {
          task += 1;
          const asked = operator.ask("kilo", "go", { ref: `T-${task}` });
          let done = false;
          void asked.finally(() => (done = true)).catch(() => {});
          while (!done) {
            const handler = spawn(process.execPath, [HANDLER], { env, stdio: "inherit" });
            const over = once(handler, "exit");
            await Promise.race([asked, delay(150 + Math.random() * 500)]);
            if (!done && Math.random() < 0.2) {
              await broker.kill();
              await broker.start();
            }
            killed += Number(!done);
            handler.kill("SIGKILL");
            await over;
          }
          const { text, message } = await asked;
          assert.equal(text, "one. two. yes pushed", message.reason ?? "");
        }
      };
      const forGood = () => Promise.reject(new Error("the human decides to the end"));
      await serving([other], () => Promise.race([campaign(), decide().then(forGood)]));
      const each = Array.from({ length: task }, () => ["one", "two"]).flat();
      assert.deepEqual(served, each);
      assert.equal(decided.length, 2 * task, "one question and one held call a task");
      console.log(`${killed} kills in ${task} tasks`);
    },
    LIMITS,
    3_600_000,
  ),
);

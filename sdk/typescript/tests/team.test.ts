/** What a team does by the SDK, against the real broker. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { z } from "zod";

import { Agent, Answer, Human, NotDeterministic, Refused, Rejected, Session, type Turn } from "../src/index.ts";
import type { Broker } from "../src/testing.ts";
import { forever, serving, withBroker } from "./running.ts";

test("two agents ask each other", () =>
  withBroker(async (broker, operator) => {
    const planner = new Agent(await broker.agent("planner"));
    const tester = new Agent(await broker.agent("tester", { actions: ["run_tests"] }));
    planner.onRequest(async (turn) => {
      const payload = { branch: turn.text, n: 3 };
      const tests = await turn.ask("#run_tests", "Run them", { action: "run_tests", payload });
      assert.deepEqual([tests.failed, tests.payload], [false, { passed: 3 }]);
      return `${tests.text} for ${turn.sender}`;
    });
    const payload = z.object({ branch: z.string(), n: z.number(), seed: z.number().default(7) });
    tester.onRequest(
      "run_tests",
      (turn, { branch, n, seed }) => {
        turn.spent({ inputTokens: 900, outputTokens: 80, model: "a-model" });
        return new Answer(`${branch}: ${n} passed with seed ${seed}`, { payload: { passed: n } });
      },
      { payload },
    );
    const reply = await serving([planner, tester], () => operator.ask("planner", "main", { ref: "T-1" }));
    assert.equal(reply.text, "main: 3 passed with seed 7 for operator");
    const tree = await broker.human().call("GET", "/conversations/{ref}", { path: { ref: "T-1" } });
    const spent = tree.grants[0]?.limits.find((limit) => limit.name.includes("tokens"));
    assert.ok((spent?.current ?? 0) >= 980, JSON.stringify(tree.grants));
  }));

test("a human decides, edits and rejects", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const made: unknown[] = [];
    agent.onRequest(async (turn) => {
      made.push((await turn.approve("git", { args: ["push"] }, { reason: "reviewed" })).arguments);
      made.push((await turn.approve("git", { args: ["push", "--force"] })).arguments);
      await assert.rejects(turn.approve("rm", { path: "/" }), (error) => {
        assert.ok(error instanceof Rejected && error.modelHint().includes("rejected"));
        return error.comment === "never";
      });
      const region = await turn.escalate("Where?", { options: ["eu", "us"] });
      await turn.progress("deploying");
      return turn.claim("repo:src/auth/*", (claim) => `deployed ${claim.view.resource} to ${region}`);
    });
    const reply = await serving([agent], async () => {
      const asked = operator.ask("kilo", "Deploy", { ref: "T-1" });
      const verdicts = ["approve", "edit", "reject"];
      for await (const waiting of operator.watch()) {
        if (!("tool" in waiting)) {
          await operator.answer(waiting, "eu");
          break;
        }
        const verdict = verdicts.shift();
        if (verdict === "approve") await operator.decide(waiting, "approve");
        else if (verdict === "edit") await operator.decide(waiting, "edit", { arguments: { args: ["push"] } });
        else await operator.decide(waiting, "reject", { comment: "never" });
      }
      return asked;
    });
    assert.equal(reply.text, "deployed repo:src/auth/* to eu");
    assert.deepEqual(made, [{ args: ["push"] }, { args: ["push"] }]);
  }));

test("a resource is held until it is released", () =>
  withBroker(async (broker, operator) => {
    const [one, two] = [new Agent(await broker.agent("one")), new Agent(await broker.agent("two"))];
    two.onRequest((turn) => turn.claim("repo:src/*", () => "mine"));
    one.onRequest(async (turn) => {
      const claim = await turn.claim("repo:src/*");
      const refused = await turn.ask("two", "Try it");
      assert.match(refused.message.reason ?? "", /claim_held/);
      await claim[Symbol.asyncDispose]();
      return (await turn.ask("two", "Try it now")).text;
    });
    const reply = await serving([one, two], () => operator.ask("one", "go", { ref: "T-1" }));
    assert.equal(reply.text, "mine", reply.message.reason ?? "");
  }));

test("a handler that runs again gets what it had", () =>
  withBroker(async (broker, operator) => {
    // The first run ends without an answer behind its second call; the broker is killed in between.
    const kilo = await broker.agent("kilo");
    const [first, second, other] = [new Agent(kilo), new Agent(kilo), new Agent(await broker.agent("other"))];
    const served: string[] = [];
    const reached = Promise.withResolvers<void>();
    other.onRequest((turn) => {
      served.push(turn.text);
      return `${turn.text} done`;
    });
    let drawn = 0;
    first.onRequest(async (turn) => {
      assert.equal(await turn.step("draw a card", () => ++drawn), 1);
      await turn.ask("other", "one");
      await turn.ask("other", "two");
      reached.resolve();
      await forever(turn);
    });
    second.onRequest(async (turn) => {
      const answers = [await turn.step("draw a card", () => ++drawn)].map(String);
      for (const text of ["one", "two", "three"]) answers.push((await turn.ask("other", text)).text);
      return answers.join(", ");
    });
    const reply = await serving([other], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      const crashing = first.serve({ graceMs: 0 });
      await reached.promise;
      await broker.kill();
      first.stop();
      await crashing;
      await broker.start();
      return serving([second], () => asked);
    });
    assert.equal(reply.text, "1, one done, two done, three done", reply.message.reason ?? "");
    assert.deepEqual(served, ["one", "two", "three"]);
  }));

test("another way under the same key is told by name", () =>
  withBroker(async (broker, operator) => {
    const kilo = await broker.agent("kilo");
    const [first, second, other] = [new Agent(kilo), new Agent(kilo), new Agent(await broker.agent("other"))];
    const reached = Promise.withResolvers<void>();
    other.onRequest(() => "done");
    first.onRequest(async (turn) => {
      await turn.ask("other", "one");
      reached.resolve();
      await forever(turn);
    });
    second.onRequest(async (turn) => {
      const error = await turn.ask("other", "something else").catch((error: unknown) => error);
      assert.ok(error instanceof NotDeterministic && error.message.startsWith("call 1 of the handler"), String(error));
      return "noticed";
    });
    const reply = await serving([other], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      const crashing = first.serve({ graceMs: 0 });
      await reached.promise;
      first.stop();
      await crashing;
      return serving([second], () => asked);
    });
    assert.equal(reply.text, "noticed", reply.message.reason ?? "");
  }));

test("refusals are typed, and wrong requests are answered", (t) =>
  withBroker(async (broker, operator) => {
    t.mock.method(console, "error", () => {}); // The handler that fails is told there.
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest(
      "add",
      async (turn, { a, b }) => {
        const error = await turn.ask("nobody", "hello").catch((error: unknown) => error);
        assert.ok(error instanceof Refused && error.rule && error.modelHint().includes(error.hint), String(error));
        return { sum: a + b };
      },
      { payload: z.object({ a: z.number(), b: z.number() }) },
    );
    agent.onRequest("fail", () => {
      throw new RangeError("as it is meant");
    });
    agent.onRequest("odd", () => () => {});
    await serving([agent], async () => {
      const summed = await operator.ask("kilo", "", { ref: "T-1", action: "add", payload: { a: 1, b: 2 } });
      assert.deepEqual(summed.payload, { sum: 3 });
      const lacking = await operator.ask("kilo", "", { ref: "T-2", action: "add", payload: { a: 1 } });
      assert.equal(lacking.status, "failed");
      assert.match(lacking.message.reason ?? "", /^payload\.b: /);
      const failed = await operator.ask("kilo", "", { ref: "T-3", action: "fail" });
      assert.deepEqual([failed.failed, failed.message.reason], [true, "RangeError: as it is meant"]);
      const odd = await operator.ask("kilo", "", { ref: "T-4", action: "odd" });
      assert.match(odd.message.reason ?? "", /an answer is a text, an Answer or JSON, not a function/);
      assert.ok((await operator.ask("kilo", "?", { ref: "T-5" })).failed);
      await assert.rejects(operator.ask("kilo", "", { ref: "T-6" }), Refused);
    });
    await assert.rejects(broker.human().call("GET", "/agents/{name}", { path: { name: "no one" } }), Refused);
  }));

test("an answer that is too long ends the turn as failed", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest("frame", () => "x".repeat(1 << 20));
    agent.onRequest("body", () => "x".repeat(600 << 10));
    await serving([agent], async () => {
      for (const action of ["frame", "body"]) {
        const reply = await operator.ask("kilo", "", { ref: action, action });
        assert.equal(reply.status, "failed", action);
        assert.match(reply.message.reason ?? "", /bytes|too_large/);
      }
    });
  }));

/** Has a handler that only waits, lets its turn be ended, and checks how the handler sees it. */
function ends(expected: RegExp, end: (broker: Broker, operator: Human, turn: Turn) => Promise<unknown>, config = "") {
  return withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const [working, seen] = [Promise.withResolvers<Turn>(), Promise.withResolvers<unknown>()];
    agent.onRequest(async (turn) => {
      working.resolve(turn);
      await forever(turn).catch(() => {});
      seen.resolve(await turn.ask("kilo", "too late").catch((error: unknown) => error));
    });
    await serving([agent], async () => {
      operator.ask("kilo", "go", { ref: "T-1" }).catch(() => {}); // It may be held for the human.
      await end(broker, operator, await working.promise);
      assert.match(String(await seen.promise), expected);
    });
  }, config);
}

test("a stop ends the handler at once", () =>
  ends(/turn-1 is over: its request ended/, (_, operator) => operator.stop({ ref: "T-1" })));

test("a cancelled request ends the handler at once", () =>
  ends(/turn-1 is over: its request ended/, (broker, _, turn) => {
    const id = turn.message.request_id ?? "";
    return broker.human().call("POST", "/requests/{id}/cancel", { path: { id } });
  }));

test("a used-up budget ends the handler with its next renewal", () =>
  ends(
    /turn-1 is over: budget/,
    async (_, __, turn) => turn.spent({ inputTokens: 10_000 }),
    "[limits]\nlease_ms = 3000\ngrant_tokens_max = 1000\n",
  ));

test("a lost lease gives the request to another run", () =>
  withBroker(async (broker, operator) => {
    const kilo = await broker.agent("kilo");
    const [first, second, other] = [new Agent(kilo), new Agent(kilo), new Agent(await broker.agent("other"))];
    const [reached, lost] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const served: string[] = [];
    other.onRequest((turn) => void served.push(turn.text));
    first.onRequest(async (turn) => {
      await turn.ask("other", "one");
      await turn.escalate("Go on?");
      reached.resolve();
      await forever(turn);
    });
    second.onRequest(async (turn) => {
      await turn.ask("other", "one");
      return `${await turn.escalate("Go on?")} in attempt ${turn.view.attempt}`;
    });
    const events = new Session(
      broker.operator,
      () => ({ events: {} }),
      ({ event }) => event?.type === "turn_closed" && event.agent === "kilo" && lost.resolve(),
    );
    await events.open();
    const reply = await serving([other], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      const crashing = first.serve({ graceMs: 0 });
      for await (const waiting of operator.watch()) {
        assert.ok(!("tool" in waiting));
        await operator.answer(waiting, "yes");
        break;
      }
      await reached.promise;
      first.stop();
      await crashing;
      await lost.promise;
      return serving([second], () => asked);
    });
    await events.close();
    assert.equal(reply.text, "yes in attempt 2", reply.message.reason ?? "");
    assert.deepEqual(served, ["one"]);
  }, "[limits]\nlease_ms = 2000\n"));

test("a run that a budget ended goes on once a human grants more", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const ended = Promise.withResolvers<void>();
    let runs = 0;
    agent.onRequest(async (turn) => {
      const card = await turn.step("draw a card", () => runs);
      if (++runs > 1) return `run ${runs} of ${turn.text} with card ${card}`;
      turn.spent({ inputTokens: 2_000 });
      turn.signal.addEventListener("abort", () => ended.resolve());
      return forever(turn);
    });
    const reply = await serving([agent], async () => {
      const asked = operator.ask("kilo", "the work", { ref: "T-1" });
      await ended.promise;
      await operator.grant("T-1", { tokens: 10_000 });
      return asked;
    });
    assert.equal(reply.text, "run 2 of the work with card 0", reply.message.reason ?? "");
  }, "[limits]\nlease_ms = 3000\ngrant_tokens_max = 1000\n"));

test("what is paused goes on once it is resumed", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const served: string[] = [];
    agent.onRequest((turn) => void served.push(turn.text));
    await serving([agent], async () => {
      await operator.ask("kilo", "before", { ref: "T-1" });
      for (const what of [{ agent: "kilo" }, { ref: "T-1" }, "everything"] as const) {
        await operator.pause(what);
        const asked = operator.ask("kilo", "paused", { ref: "T-1" });
        await operator.approvals(); // The request has arrived.
        served.push("resumed");
        await operator.resume(what);
        await asked;
      }
    });
    assert.deepEqual(served, ["before", ...["resumed", "paused", "resumed", "paused", "resumed", "paused"]]);
  }));

test("a stopped agent finishes what it works on, and takes no more", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo", { turns_max: 2 }));
    const [working, goOn, stop] = [Promise.withResolvers<void>(), Promise.withResolvers<void>(), new AbortController()];
    const served: string[] = [];
    agent.onRequest(async (turn) => {
      served.push(turn.text);
      working.resolve();
      await goOn.promise;
      return "finished";
    });
    const serving = agent.serve({ signal: stop.signal });
    const first = operator.ask("kilo", "first", { ref: "T-1" });
    await working.promise;
    stop.abort();
    const second = operator.ask("kilo", "second", { ref: "T-2" }).catch((error: unknown) => error);
    await operator.approvals(); // The second one has arrived.
    goOn.resolve();
    assert.equal((await first).text, "finished");
    await serving;
    await operator.close();
    assert.match(String(await second), /the session is closed/);
    assert.deepEqual(served, ["first"]);
  }));

test("an agent stops though its answer can't be told", (t) =>
  withBroker(async (broker, operator) => {
    const warned = t.mock.method(console, "warn", () => {});
    const agent = new Agent(await broker.agent("kilo"));
    const working = Promise.withResolvers<void>();
    agent.onRequest(async () => {
      working.resolve();
      await broker.kill();
      agent.stop();
      return "lost";
    });
    const serving = agent.serve({ graceMs: 100 });
    const asked = operator.ask("kilo", "go", { ref: "T-1" });
    await working.promise;
    await serving;
    assert.match(String(warned.mock.calls.at(-1)?.arguments[0]), /the answer of turn-1 was not taken/);
    await operator.close();
    await assert.rejects(asked);
  }));

test("all who watch see what waits", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest((turn) => turn.escalate("Go on?"));
    const watching = [operator.watch(), operator.watch()].map((watch) => watch.next());
    await operator.questions(); // Both look, and nothing waits yet.
    await serving([agent], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      const [one, other] = (await Promise.all(watching)).map(({ value }) => value);
      assert.ok(one && !("tool" in one) && other?.id === one.id);
      await operator.answer(one, "yes");
      await asked;
    });
  }));

test("calls that wait hold up no others, however many", () =>
  withBroker(async (broker, operator) => {
    await broker.agent("kilo");
    const asks = Array.from({ length: 300 }, (_, n) => operator.ask("kilo", "go", { ref: `T-${n}` }));
    const all = Promise.allSettled(asks);
    assert.deepEqual(await operator.approvals(), []);
    await operator.close();
    assert.ok((await all).every(({ status }) => status === "rejected"));
  }));

test("an agent whose token is replaced stops with the reason", () =>
  withBroker(async (broker) => {
    const agent = new Agent(await broker.agent("kilo"));
    const serving = agent.serve();
    const { items } = await broker.human().call("GET", "/agents");
    assert.ok(items.some((one) => one.name === "kilo"));
    await broker.human().call("POST", "/agents/{name}/token", { path: { name: "kilo" } });
    await assert.rejects(serving, /token/);
  }));

test("a lease is renewed while the handler works", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    const renewed = Promise.withResolvers<void>();
    let count = 0;
    const events = new Session(
      broker.operator,
      () => ({ events: {} }),
      ({ event }) => {
        if (event?.type === "renewed" && ++count === 4) renewed.resolve();
      },
    );
    await events.open();
    const attempts: number[] = [];
    agent.onRequest(async (turn) => {
      attempts.push(turn.view.attempt);
      await renewed.promise;
    });
    await serving([agent], () => operator.ask("kilo", "go", { ref: "T-1" }));
    await events.close();
    assert.deepEqual(attempts, [1]);
  }, "[limits]\nlease_ms = 2000\n"));

test("reports that follow each other too soon end no handler", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest(async (turn) => {
      // The agent's own renewal, after a second, comes right behind one of these.
      for (const start = Date.now(); Date.now() < start + 1_500;) await turn.progress("still here");
      return "done";
    });
    const reply = await serving([agent], () => operator.ask("kilo", "go", { ref: "T-1" }));
    assert.equal(reply.text, "done", reply.message.reason ?? "");
  }, "[limits]\nlease_ms = 3000\n"));

test("arguments that a human edited stay as they were written", () =>
  withBroker(async (broker, operator) => {
    const agent = new Agent(await broker.agent("kilo"));
    agent.onRequest(async (turn) => {
      assert.deepEqual((await turn.approve("pay", { amount: 1 })).arguments, { amount: 10.5, times: [1, 1000] });
      await assert.rejects(turn.approve("pay", { amount: 1 }), /`amount` is 12345678901234567890/);
      return "paid";
    });
    const reply = await serving([agent], async () => {
      const asked = operator.ask("kilo", "go", { ref: "T-1" });
      const edits = ['{"amount": 10.50, "times": [1.0, 1e3]}', '{"amount": 12345678901234567890}'];
      for await (const waiting of operator.watch()) {
        const body = `{"decision": "edit", "input": ${edits.shift()}}`;
        const headers = { Authorization: `Bearer ${broker.operator.token}`, "Content-Type": "application/json" };
        const url = `${broker.operator.url}/v1/approvals/${waiting.id}/decision`;
        assert.ok((await fetch(url, { method: "POST", headers, body })).ok);
        if (edits.length === 0) break;
      }
      return asked;
    });
    assert.equal(reply.text, "paid", reply.message.reason ?? "");
  }));

test("a wrong token is refused at once", () =>
  withBroker(async (broker) => {
    const human = new Human({ url: broker.operator.url, token: "lw_wrong" });
    const unauthenticated = (error: unknown) => error instanceof Refused && error.code === "unauthenticated";
    await assert.rejects(human.approvals(), unauthenticated);
    await assert.rejects(async () => {
      for await (const _ of human.watch()) assert.fail();
    }, unauthenticated);
    await assert.rejects(new Agent({ url: broker.operator.url, token: "lw_wrong" }).serve(), unauthenticated);
  }));

test("mistakes of a start are named", () => {
  const agent = new Agent({ url: "http://127.0.0.1:1", token: "token" });
  agent.onRequest("review", () => "ok");
  assert.throws(() => agent.onRequest("review", () => "ok"), /the action review has a handler/);
  assert.throws(() => new Agent({ url: "127.0.0.1:1", token: "token" }), /http:\/\//);
});

// The SDK for JavaScript as a client of an agent that a workspace publishes, by one binding. What the workspace is comes as JSON.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { Role, TaskState, verifyAgentCardSignature } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const { url, binding, name, tokens, limits } = JSON.parse(process.argv[2]);
const rpc = binding === "JSONRPC";
let checks = 0;
const same = (found, expected, what) => (assert.deepEqual(found, expected, what), checks++);

/** A call of the broker's own API. */
async function call(who, method, path, body, turn) {
  const headers = { authorization: `Bearer ${tokens[who]}`, "content-type": "application/json" };
  if (turn) headers["lastword-turn"] = turn;
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}
const take = async () => {
  const taken = await call("coder", "GET", "/v1/inbox?wait=20s&turns=true");
  assert.ok(taken?.turn, "nothing came");
  return taken;
};
const note = (taken, text) => call("coder", "POST", `/v1/turns/${taken.turn.id}/progress`, { note: text });
const finish = (taken, body) => call("coder", "POST", `/v1/turns/${taken.turn.id}/finish`, body);

/** A client of the agent, with the last error that came. */
const answers = [];
async function connect(who, agent, address = `${url}/a2a/${agent}/`) {
  const fetchImpl = async (input, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("authorization", `Bearer ${tokens[who]}`);
    const answer = await fetch(input, { ...init, headers });
    if ((answer.headers.get("content-type") ?? "").includes("json")) answers.push(await answer.clone().json());
    return answer;
  };
  const transports = [rpc ? new JsonRpcTransportFactory({ fetchImpl }) : new RestTransportFactory({ fetchImpl })];
  return new ClientFactory({ transports }).createFromUrl(address);
}

let sent = 0;
function message(text, more = {}, parts = []) {
  const part = (content) => ({ content, metadata: undefined, filename: "", mediaType: "" });
  return {
    tenant: "",
    metadata: undefined,
    configuration: more.configuration,
    message: {
      messageId: more.messageId ?? `${name}-${++sent}`,
      taskId: more.taskId ?? "",
      contextId: more.contextId ?? "",
      role: Role.ROLE_USER,
      parts: [{ $case: "text", value: text }, ...parts].map(part),
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    },
  };
}
const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: true };
const atOnce = (text, more = {}) => message(text, { ...more, configuration });
const state = (found) => TaskState[found.status.state].replace("TASK_STATE_", "");
const event = (one) => (one.payload.$case === "artifactUpdate" ? "ARTIFACT" : state(one.payload.value));
const text = (parts) => parts.map((part) => part.content.value);
async function rest(stream) {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
}
const next = async (stream) => (await stream.next()).value;
async function refused(awaited, kind) {
  await assert.rejects(awaited, (error) => error.name === kind || assert.fail(`${error.name}: ${error.message}`));
  checks++;
}

const client = await connect(name, "coder");
const named = (id) => ({ tenant: "", id, metadata: undefined });

// The card. The slash at the end is needed: this SDK resolves the path of the card against the address.
await assert.rejects(connect(name, "coder", `${url}/a2a/coder`), /404/);
checks++;
const raw = await (await fetch(`${url}/a2a/coder/.well-known/agent-card.json`)).json();
const { keys } = await (await fetch(`${url}/a2a/.lastword/jwks.json`)).json();
const verify = verifyAgentCardSignature(async (kid, jku) => {
  assert.equal(jku, `${url}/a2a/.lastword/jwks.json`);
  return keys.find((key) => key.kid === kid);
});
// As it came: what this SDK makes of a card has lost its security schemes when it is verified.
await verify(raw);
checks++;
console.debug = () => {};
await assert.rejects(verify({ ...raw, name: "other" }));
checks++;
same((await client.getAgentCard()).skills[0].tags, ["review", "core"], "the extended card");

// Sends.
const sending = client.sendMessage(message("Do it.", {}, [{ $case: "data", value: { n: 1 } }]));
let taken = await take();
same([taken.message.body, taken.message.payload], ["Do it.", { n: 1 }], "the request");
await finish(taken, { answer: "Done.", payload: { ok: true } });
const done = await sending;
same(state(done), "COMPLETED", "a send that waits");
same(text(done.artifacts[0].parts), ["Done.", { ok: true }], "the answer");
const request = atOnce("Again.");
const [first, again] = [await client.sendMessage(request), await client.sendMessage(request)];
same([state(first), again.id], ["SUBMITTED", first.id], "a repeated send is the same task");
same(state(await client.cancelTask(named(first.id))), "CANCELED", "cancel");
await refused(client.cancelTask(named(first.id)), "TaskNotCancelableError");
const history = await client.getTask({ ...named(first.id), historyLength: 0 });
same([history.id, history.history], [first.id, []], "a task without its history");
const wanted = { tenant: "", contextId: "", status: TaskState.TASK_STATE_COMPLETED, pageToken: "", includeArtifacts: true };
const listed = await client.listTasks({ ...wanted, statusTimestampAfter: undefined, pageSize: 1 });
same([listed.totalSize, listed.tasks[0].id, text(listed.tasks[0].artifacts[0].parts)[0]], [1, done.id, "Done."], "the list");

// Streams.
const stream = client.sendMessageStream(message("Deploy it."));
const begun = await next(stream);
const { id } = begun.payload.value;
same([begun.payload.$case, event(begun)], ["task", "SUBMITTED"], "a stream begins with the task");
const other = client.resubscribeTask({ tenant: "", id });
same((await next(other)).payload.value.id, id, "so does another one");
taken = await take();
await note(taken, "half of it");
same([event(await next(stream)), event(await next(stream))], ["WORKING", "WORKING"], "events");
await stream.return();
const held = await call("coder", "POST", "/v1/approvals", { tool: "deploy", arguments: { x: 1 } }, taken.turn.token);
const later = client.resubscribeTask({ tenant: "", id });
same(event(await next(later)), "AUTH_REQUIRED", "a new stream begins where the task is");
const decision = { decision: "approve", digest: held.digest };
await call("operator", "POST", `/v1/approvals/${held.id}/decision`, decision);
same(event(await next(later)), "WORKING", "the operator's decision, while it streams");
await finish(taken, { answer: "Deployed." });
const left = await rest(later);
const whole = await rest(other);
same(left.map(event), ["ARTIFACT", "COMPLETED"], "the end");
same(whole.map(event), ["WORKING", "WORKING", "AUTH_REQUIRED", "WORKING", "ARTIFACT", "COMPLETED"], "the undisturbed stream");
same(whole.slice(-2), left, "the same events");
same(whole.at(-1).payload.value.status, (await client.getTask(named(id))).status, "the task is as its last event");
await refused(rest(client.resubscribeTask({ tenant: "", id })), "UnsupportedOperationError");
await refused(client.sendMessage(message("And now?", { taskId: id })), "UnsupportedOperationError");

// Questions.
const asking = client.sendMessage(message("Deploy it."));
taken = await take();
await call("coder", "POST", "/v1/escalations", { message: "Which one?" }, taken.turn.token);
await finish(taken, { answer: "", status: "waiting" });
const asked = await asking;
same([state(asked), text(asked.status.message.parts)], ["INPUT_REQUIRED", ["Which one?"]], "the question");
const answering = client.sendMessage(message("The second.", { taskId: asked.id, contextId: asked.contextId }));
taken = await take();
same(taken.message.body, "The second.", "the caller's answer");
await finish(taken, { answer: "Deployed the second." });
const answered = await answering;
same([answered.id, state(answered)], [asked.id, "COMPLETED"], "the same task ends");

// Push notifications.
const posts = [];
let wake = () => {};
const receiver = createServer((incoming, outgoing) => {
  let body = "";
  incoming.on("data", (chunk) => (body += chunk));
  incoming.on("end", () => {
    posts.push([incoming.headers, JSON.parse(body)]);
    outgoing.writeHead(204).end();
    wake();
  });
});
await new Promise((ready) => receiver.listen(0, "127.0.0.1", ready));
const pushed = await client.sendMessage(atOnce("Do it."));
const config = {
  tenant: "",
  id: "mine",
  taskId: pushed.id,
  url: `http://127.0.0.1:${receiver.address().port}/`,
  token: "a token",
  authentication: { scheme: "Bearer", credentials: "a secret" },
};
same(await client.createTaskPushNotificationConfig(config), config, "a configuration");
const place = { tenant: "", taskId: pushed.id };
same((await client.listTaskPushNotificationConfig({ ...place, pageSize: 0, pageToken: "" })).configs, [config], "the list");
await finish(await take(), { answer: "Done." });
while (posts.length < 4) await new Promise((resolve) => (wake = resolve));
same(posts.map(([, body]) => Object.keys(body)[0]), ["task", "statusUpdate", "artifactUpdate", "statusUpdate"], "the posts");
same([posts[0][0].authorization, posts[0][0]["x-a2a-notification-token"]], ["Bearer a secret", "a token"], "their headers");
await client.deleteTaskPushNotificationConfig({ ...place, id: "mine" });
same((await client.listTaskPushNotificationConfig({ ...place, pageSize: 0, pageToken: "" })).configs, [], "deleted");
receiver.close();

// Refusals.
await refused(client.getTask(named("a2a-unknown")), "TaskNotFoundError");
const file = { $case: "url", value: "https://example.com/file" };
await refused(client.sendMessage(message("Read it.", {}, [file])), "ContentTypeNotSupportedError");
const version = { serviceParameters: { "A2A-Version": "0.3" } };
await refused(client.transport.getTask(named("a2a-unknown"), version), "VersionNotSupportedError");
const greedy = await connect(`${name}-greedy`, "quiet");
for (let n = 0; n < limits.roots_per_hour_max; n++) await greedy.sendMessage(atOnce("Do it."));
await refused(greedy.sendMessage(atOnce("Do it.")), rpc ? "JsonRpcTransportError" : "A2AError");
const { error } = answers.at(-1);
const info = (rpc ? error.data : error.details)[0];
same([info.domain, info.reason, info.metadata.rule], ["lastword", "ROOT_ALLOWANCE", "D7"], "a refusal of the broker");
console.log(`a2a javascript client ${binding}: ${checks} checks`);

// An agent elsewhere, made with the SDK for JavaScript. Its first line says where it is.
import { randomUUID } from "node:crypto";
import { Role, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler } from "@a2a-js/sdk/server/express";
import express from "express";

// What was received, and the gates of the tasks that wait for them.
const seen = [];
const gates = new Map();
const gate = (name) => {
  if (!gates.has(name)) {
    let open;
    const opened = new Promise((resolve) => (open = resolve));
    gates.set(name, { open, opened });
  }
  return gates.get(name);
};
const part = (value) => ({ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "" });

/** Does what the first word of a message says. */
class Scripted {
  running = new Map();

  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const text = userMessage.parts[0].content.value;
    seen.push({ id: userMessage.messageId, task: taskId, text });
    const goesOn = context.task !== undefined;
    const told = (words) => ({
      messageId: randomUUID(),
      role: Role.ROLE_AGENT,
      taskId,
      contextId,
      parts: [part(words)],
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    });
    const status = (state, words) => ({
      state,
      message: words === undefined ? undefined : told(words),
      timestamp: new Date().toISOString(),
    });
    const say = (state, words) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, words), metadata: undefined }));
    const give = (words, artifactId = "answer", append = false, lastChunk = true) => {
      const artifact = { artifactId, name: "", description: "", parts: [part(words)], metadata: undefined, extensions: [] };
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append, lastChunk, metadata: undefined }));
    };
    const task = { id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined };
    bus.publish(AgentEvent.task(context.task ?? { ...task, status: status(TaskState.TASK_STATE_SUBMITTED) }));
    say(TaskState.TASK_STATE_WORKING);
    const cancelled = new Promise((resolve) => this.running.set(taskId, resolve));
    if (goesOn) {
      give(`You said: ${text}`);
      say(TaskState.TASK_STATE_COMPLETED);
    } else if (text.startsWith("chunks")) {
      ["one ", "two ", "three"].forEach((chunk, n) => give(chunk, "z", n > 0, n === 2));
      give("another", "a");
      say(TaskState.TASK_STATE_COMPLETED);
    } else if (text.startsWith("ask")) {
      say(TaskState.TASK_STATE_INPUT_REQUIRED, "Which one?");
    } else if (text.startsWith("fail")) {
      say(TaskState.TASK_STATE_FAILED, "It broke.");
    } else if (text.startsWith("wait")) {
      say(TaskState.TASK_STATE_WORKING, "Begun.");
      if ((await Promise.race([gate(text).opened, cancelled])) === "cancelled") {
        say(TaskState.TASK_STATE_CANCELED);
      } else {
        give("Waited.");
        say(TaskState.TASK_STATE_COMPLETED);
      }
    } else {
      give(`Done: ${text}`);
      say(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async cancelTask(taskId) {
    seen.push({ cancelled: taskId });
    this.running.get(taskId)?.("cancelled");
  }
}

const app = express();
const server = app.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  app.get("/seen", (_, answer) => answer.json(seen));
  app.post("/go", express.text({ type: () => true }), (asked, answer) => (gate(asked.body).open(), answer.sendStatus(204)));
  for (const [path, streaming] of [["/plain/", false], ["/", true]]) {
    const card = {
      name: "scripted",
      description: "Does what it is told.",
      version: "1",
      supportedInterfaces: [{ url: base + path, protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" }],
      provider: undefined,
      documentationUrl: undefined,
      capabilities: { streaming, pushNotifications: false, extensions: [], extendedAgentCard: false },
      securitySchemes: {},
      securityRequirements: [],
      defaultInputModes: ["text/plain"],
      defaultOutputModes: ["text/plain"],
      skills: [],
      signatures: [],
      iconUrl: undefined,
    };
    const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Scripted());
    app.use(`${path}.well-known/agent-card.json`, agentCardHandler({ agentCardProvider: requestHandler }));
    app.use(path, jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  }
  console.log(JSON.stringify({ listening: base }));
});

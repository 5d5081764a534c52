"""A scripted model on loopback, for real agent programs: Anthropic Messages, OpenAI Responses and Chat, Gemini.

The newest prompt is the script; of a prompt by Lastword, the text after its last header. These lines are directives:

  call: TOOL {JSON}  calls the first tool whose name matches the regular expression TOOL, then says `done: RESULT`
  edit: TOOL {JSON}  the same for an edit; one that is refused because another task holds the file is made once that ends
  pong: ANN BOB      sends this line as a request to the other of the two, then answers with this line and the result
  say: TEXT          says TEXT
  wait: NAME         before any of these: waits until the test calls `release(NAME)`

Without a directive the model says `done: nothing to call`. Each reply reports 1,000 input tokens, of which 200 are read
from a cache where the API can say so, and 50 output tokens."""

import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIRECTIVE = re.compile(r"^(call|edit|pong|say|wait): (.+)$", re.M)
# What a model is told that may wait for a file.
HELD = re.compile(r'call check_request with request_id \\?"(.*?)\\?"')
RECIPIENT = re.compile(r"^\[FROM:[^]]*\]\[TO:([^]]*)\]", re.M)
INPUT, CACHED, OUTPUT = 1000, 200, 50


def texts(content):
    """All texts of a message's content."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(texts(part) for part in content)
    if isinstance(content, dict):
        return texts(content.get("text") or content.get("content") or content.get("output") or "")
    return ""


def turns(body):
    """The prompts and tool results of a request, in their order: (is_result, text)."""
    for message in body.get("messages") or []:
        content = message.get("content")
        if message.get("role") == "tool":
            yield True, texts(content)
        elif message.get("role") == "user":
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for part in parts:
                yield part.get("type") == "tool_result", texts(part)
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        if item.get("type", "").endswith("call_output"):
            yield True, texts(item.get("output"))
        elif item.get("role") in ("user", "developer"):
            yield False, texts(item.get("content"))
    for message in body.get("contents") or []:
        for part in message.get("parts", []):
            if "functionResponse" in part:
                yield True, json.dumps(part["functionResponse"].get("response"))
            elif message.get("role") == "user":
                yield False, part.get("text", "")


def offered(body):
    """The names of the offered tools, each with its namespace if it has one."""
    for tool in body.get("tools") or []:
        if "functionDeclarations" in tool:
            yield from ((found["name"], None) for found in tool["functionDeclarations"])
        elif tool.get("type") == "namespace":
            yield from ((found["name"], tool["name"]) for found in tool.get("tools", []))
        elif "name" in tool:
            yield tool["name"], None
        elif "function" in tool:
            yield tool["function"]["name"], None


def scripted(body):
    """The newest prompt's directives by name, its recipient, and the tool results since."""
    script, recipient, results = {}, None, []
    for is_result, text in turns(body):
        if is_result:
            results.append(text)
            continue
        header = None
        for header in RECIPIENT.finditer(text):
            pass
        if found := DIRECTIVE.findall(text, header.start() if header else 0):
            script, recipient, results = dict(found), header and header[1], []
        elif "edit" in script:
            # A program that can't say why a call was refused is told by the next prompt.
            results.append(text)
    return script, recipient, results


def decide(script, recipient, results, tools):
    """The next step: ("text", words) or ("call", name, namespace, arguments)."""
    line = None
    if "pong" in script:
        first, second = script["pong"].split()
        line = f"pong: {script['pong']}"
        pattern, arguments = "send_agent_message", {"target_agent_id": second if recipient == first else first, "message": line}
    elif "edit" in script:
        pattern, arguments = script["edit"].split(" ", 1)
        arguments = json.loads(arguments)
        if held := results and HELD.search(results[-1]):
            pattern, arguments = "check_request", {"request_id": held[1]}
            results = []
        elif results and ('"ended"' in results[-1] or "read it again" in results[-1]):
            results = []
    elif "call" in script:
        pattern, arguments = script["call"].split(" ", 1)
        arguments = json.loads(arguments)
    else:
        return "text", script.get("say", "done: nothing to call")
    if results:
        return "text", f"{line}\n{results[-1][:300]}" if line else f"done: {results[-1][:300]}"
    for name, namespace in tools:
        if re.search(pattern, (namespace or "") + name):
            return "call", name, namespace, arguments
    return "text", f"no tool matches {pattern}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, value, events=None):
        if events is None:
            kind, data = "application/json", json.dumps(value).encode()
        else:
            kind = "text/event-stream"
            lines = (f"event: {name}\ndata: {json.dumps(event)}\n\n" if name else f"data: {json.dumps(event)}\n\n" for name, event in events)
            data = "".join(lines).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self):
        self.reply({})

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "mock", "object": "model"}], "models": []})

    def body(self):
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            value = json.loads(data or b"{}")
        except ValueError:
            value = {}
        return value if isinstance(value, dict) else {}

    def do_POST(self):
        path, body = self.path.split("?")[0], self.body()
        if "ount" in path.rsplit("/", 1)[-1] and "okens" in path:
            return self.reply({"input_tokens": 10, "totalTokens": 10})
        tools = list(offered(body))
        script, recipient, results = scripted(body)
        if tools and not results and "wait" in script:
            self.server.gate(script["wait"])
        step = decide(script, recipient, results, tools)
        self.server.replies += 1
        if tools:
            prompts = [text for is_result, text in turns(body) if not is_result]
            self.server.newest = "\n".join(text for _, text in turns(body))
            self.server.requests.append(
                {"path": path, "tools": [(space or "") + name for name, space in tools], "prompts": prompts})
        stream = bool(body.get("stream"))
        if path.endswith("/messages"):
            return self.anthropic(step, stream)
        if path.endswith("/responses"):
            return self.openai_responses(step, stream)
        if path.endswith("/chat/completions"):
            return self.chat(step, stream)
        return self.gemini(step, "stream" in path)

    def anthropic(self, step, stream):
        usage = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": OUTPUT}
        if step[0] == "text":
            block, empty, stop = {"type": "text", "text": step[1]}, {"type": "text", "text": ""}, "end_turn"
            delta = {"type": "text_delta", "text": step[1]}
        else:
            block = {"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:20], "name": step[1], "input": step[3]}
            empty, stop = dict(block, input={}), "tool_use"
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step[3])}
        message = {"id": "msg_" + uuid.uuid4().hex[:20], "type": "message", "role": "assistant", "model": "claude-mock",
                   "content": [block], "stop_reason": stop, "stop_sequence": None, "usage": usage}
        if not stream:
            return self.reply(message)
        events = [
            {"type": "message_start", "message": dict(message, content=[], stop_reason=None)},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return self.reply(None, [(event["type"], event) for event in events])

    def openai_responses(self, step, stream):
        if step[0] == "text":
            item = {"type": "message", "id": "msg_" + uuid.uuid4().hex[:12], "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": step[1], "annotations": []}]}
        else:
            item = {"type": "function_call", "id": "fc_" + uuid.uuid4().hex[:12], "call_id": "call_" + uuid.uuid4().hex[:12],
                    "name": step[1], "arguments": json.dumps(step[3]), "status": "completed"}
            if step[2]:
                item["namespace"] = step[2]
        usage = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
                 "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": "resp_" + uuid.uuid4().hex[:20], "object": "response", "created_at": 0, "status": "completed",
                    "model": "mock", "output": [item], "usage": usage}
        if not stream:
            return self.reply(response)
        events = [
            {"type": "response.created", "response": dict(response, status="in_progress", output=[])},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return self.reply(None, [(event["type"], event) for event in events])

    def chat(self, step, stream):
        usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
                 "prompt_tokens_details": {"cached_tokens": CACHED}}
        if step[0] == "text":
            message, reason = {"role": "assistant", "content": step[1]}, "stop"
        else:
            function = {"name": step[1], "arguments": json.dumps(step[3])}
            call = {"index": 0, "id": "call_" + uuid.uuid4().hex[:12], "type": "function", "function": function}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        base = {"id": "chatcmpl-" + uuid.uuid4().hex[:12], "created": 0, "model": "mock"}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.reply(dict(base, object="chat.completion", choices=[choice], usage=usage))
        chunk = dict(base, object="chat.completion.chunk")
        events = [
            dict(chunk, choices=[{"index": 0, "delta": message, "finish_reason": None}]),
            dict(chunk, choices=[{"index": 0, "delta": {}, "finish_reason": reason}]),
            dict(chunk, choices=[], usage=usage),
        ]
        return self.reply(None, [(None, event) for event in events])

    def gemini(self, step, stream):
        part = {"text": step[1]} if step[0] == "text" else {"functionCall": {"name": step[1], "args": step[3]}}
        response = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": INPUT, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT,
                              "totalTokenCount": INPUT + OUTPUT},
            "modelVersion": "mock",
        }
        return self.reply(None, [(None, response)]) if stream else self.reply(response)


class Server(ThreadingHTTPServer):
    """The listener, with what was asked so far."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.replies, self.newest = [], 0, ""
        self.waiting, self.released, self.closed, self.changed = {}, set(), False, threading.Condition()

    def gate(self, name):
        with self.changed:
            self.waiting[name] = self.waiting.get(name, 0) + 1
            self.changed.wait_for(lambda: name in self.released or self.closed, 300)

    def handle_error(self, *_):
        """A program that is killed drops its connection."""


class Model:
    """A model that serves until it is closed."""

    def __init__(self):
        self.server = Server()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def requests(self):
        return list(self.server.requests)

    def heard(self):
        """All prompts and tool results of the newest request."""
        return self.server.newest

    def replies(self):
        """How many replies reported tokens."""
        return self.server.replies

    def waiting(self, name):
        """How many requests have reached `wait: NAME`."""
        return self.server.waiting.get(name, 0)

    def release(self, name):
        with self.server.changed:
            self.server.released.add(name)
            self.server.changed.notify_all()

    def close(self):
        with self.server.changed:
            self.server.closed = True
            self.server.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

"""Libraries of consumers read what the server sends: CloudEvents of `/v1/events` and of webhooks, and their signatures."""

import base64
import json
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

import requests
from broker import CALL_SECONDS_MAX, Broker
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook, WebhookVerificationError

SECRET = "whsec_" + base64.b64encode(b"the secret of a webhook of tests").decode()
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
calls = Queue()


class Receiver(BaseHTTPRequestHandler):
    """Keeps each call by the format that its path names."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        calls.put((self.path.strip("/"), {name.lower(): value for name, value in self.headers.items()}, body))

    def log_message(self, *_):
        pass


def webhooks():
    """Each format of a webhook arrives, signed, and as the event that it says."""
    told = {name: rest for name, *rest in (calls.get(timeout=CALL_SECONDS_MAX) for _ in range(3))}
    for name, (headers, body) in told.items():
        Webhook(SECRET).verify(body, headers)
        try:
            Webhook(SECRET).verify(body + b" ", headers)
        except WebhookVerificationError:
            pass
        else:
            raise AssertionError(f"{name}: an altered body is verified")
        data = json.loads(body)
        if name != "lastword":
            event = from_http_event(HTTPMessage(headers, body))
            data = event.get_data()
            assert event.get_type() == "lastword.notification.waiting", event.get_type()
            assert event.get_id() == headers["webhook-id"] and event.get_subject() == name, event.get_attributes()
        assert data["items"][0]["id"] == "esc-1", data
    print(f"webhooks verify and parse: {', '.join(sorted(told))}")


def stream(broker):
    """Pages and the stream have the same CloudEvents, and those the events of the plain stream."""

    def get(after, accept):
        headers = {"Authorization": f"Bearer {broker.operator}", "Accept": accept}
        url = f"{broker.url}/v1/events?after={after}&until={end}"
        answer = requests.get(url, headers=headers, timeout=CALL_SECONDS_MAX)
        assert answer.ok, answer.text
        return answer

    def lines(accept):
        text = get(0, accept).text.splitlines()
        return [line.removeprefix("data: ").encode() for line in text if line.startswith("data: ")]

    def parsed(body):
        event = from_http_event(HTTPMessage({"content-type": STRUCTURED}, body))
        assert event.get_type().startswith("lastword."), event.get_attributes()
        return event

    end = 1 << 40
    end = int(get(0, BATCHED).headers["lastword-position"])
    events, after = [], 0
    while page := get(after, BATCHED).json():
        events += [parsed(json.dumps(event).encode()) for event in page]
        after = events[-1].get_id()
    streamed = [parsed(body) for body in lines(STRUCTURED)]
    plain = [json.loads(body) for body in lines("*/*")]
    assert [event.get_attributes() for event in events] == [event.get_attributes() for event in streamed]
    assert [event.get_data() for event in events] == [event.get_data() for event in streamed] == plain
    assert len({(event.get_source(), event.get_id()) for event in events}) == len(events) > 5
    print(f"{len(events)} events parse, page by page and as a stream")


receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
Thread(target=receiver.serve_forever, daemon=True).start()
with tempfile.NamedTemporaryFile("w", prefix="lastword-secret-") as secret:
    secret.write(SECRET)
    secret.flush()
    channel = """[[notify]]
name = "{name}"
webhook = "http://127.0.0.1:{port}/{name}"
secret_file = "{secret}"
format = "{name}"
allow_private = true
window = "100ms"
"""
    names = ("lastword", "cloudevents", "cloudevents-binary")
    config = (channel.format(name=name, port=receiver.server_port, secret=secret.name) for name in names)
    with Broker("".join(config)) as broker:
        kilo = broker.agent("kilo")
        broker.call("POST", "/v1/messages", json={"type": "request", "to": "kilo", "ref": "T-1", "body": "do it"})
        broker.call("GET", "/v1/inbox", kilo)
        broker.call("POST", "/v1/escalations", kilo, json={"message": "To eu or us?"})
        webhooks()
        stream(broker)

"""A passage to a server for programs that have no token to send: it adds one to each request, and changes nothing else."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SECONDS_MAX = 180
# What belongs to one connection and not to the request.
HOP = {"connection", "keep-alive", "transfer-encoding"}


class Passage:
    def __init__(self, url, token):
        target = urlsplit(url).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length) if length else None
                there = http.client.HTTPConnection(target, timeout=SECONDS_MAX)
                there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in HOP:
                        there.putheader(name, value)
                there.putheader("Authorization", f"Bearer {token}")
                there.endheaders(body)
                answer = there.getresponse()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                # The end of the connection is the end of the answer, whatever its length is.
                self.send_header("Connection", "close")
                self.end_headers()
                while piece := answer.read1():
                    self.wfile.write(piece)
                    self.wfile.flush()
                there.close()

            do_GET = do_POST = do_DELETE = forward

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

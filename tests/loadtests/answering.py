"""A server that answers as a test defines: `with answering(reply) as port`."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def answering(reply: Callable[[str, bytes], tuple[int, Any]]) -> Iterator[int]:
    """`reply(path, body)` is a status, and bytes or a JSON document. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, document = reply(self.path, self.rfile.read(int(self.headers.get("content-length", 0))))
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name of the library

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()

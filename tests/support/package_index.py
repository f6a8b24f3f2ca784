"""A package index on loopback whose network is as bad as a test needs."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PIECE = 16 * 1024


@dataclass
class Network:
    """`drops`: how many downloads break off in the middle; `pause`: seconds between pieces of 16 KiB."""

    drops: int = 0
    pause: float = 0.0
    downloads: list[str] = field(default_factory=list)
    """The byte range of each download, or an empty text."""


@contextmanager
def package_index(wheel: Path, network: Network) -> Iterator[str]:
    """The URL of an index that holds this wheel only."""
    content = wheel.read_bytes()
    link = f'<a href="/files/{wheel.name}#sha256={hashlib.sha256(content).hexdigest()}">{wheel.name}</a>'

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/files/"):
                self._download()
                return
            page = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def _download(self) -> None:
            network.downloads.append(self.headers.get("range", ""))
            self.send_response(200)
            self.send_header("content-type", "application/octet-stream")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            end = len(content)
            if network.drops:
                network.drops -= 1
                end //= 2
            for start in range(0, end, PIECE):
                self.wfile.write(content[start : min(start + PIECE, end)])
                time.sleep(network.pause)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

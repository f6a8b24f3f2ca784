"""A server of chats that answers with the streams of the corpus. The client's message names the stream: `case 17`."""

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from loadtests.gateways.replies import MODEL
from loadtests.guards.corpus import Case

_CASE = re.compile(rb"case (\d+)")
_HEAD = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": MODEL}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
_CALL: dict[str, Any] = {"id": "call_1", "type": "function"}
_PLAIN = Case("", "text", ("ready",))


def _part(case: Case, text: str, *, first: bool = True) -> dict[str, Any]:
    """A part of a message with a piece of text."""
    if case.place == "arguments":
        call = {"index": 0, "function": {"arguments": text}}
        if first:
            call |= {**_CALL, "function": {"name": "note", "arguments": text}}
        return {"tool_calls": [call]}
    return {"content" if case.place == "text" else "reasoning_content": text}


def whole(case: Case) -> bytes:
    """The answer without a stream."""
    message = {"role": "assistant", "content": None, **_part(case, case.text)}
    finish = "tool_calls" if case.place == "arguments" else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()


def events(case: Case) -> Iterator[bytes]:
    """The events of the stream, one for each chunk."""
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [(_part(case, chunk, first=not at), None) for at, chunk in enumerate(case.chunks)]
    if case.place == "thoughts":
        deltas.append(({"content": "Done."}, None))
    deltas.append(({}, "tool_calls" if case.place == "arguments" else "stop"))
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {**_HEAD, "object": "chat.completion.chunk", "choices": [choice]}
        yield b"data: " + json.dumps(body).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


@contextlib.contextmanager
def serving(cases: Sequence[Case]) -> Iterator[int]:
    """Serves on a free port of loopback, which is the value."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not self.path.endswith("/chat/completions"):
                self._send(404, "application/json", b'{"error":{"message":"only chats"}}')
                return
            named = _CASE.search(body)
            case = _PLAIN if named is None else cases[int(named[1])]
            if not json.loads(body).get("stream"):
                self._send(200, "application/json", whole(case))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in events(case):
                self.wfile.write(event)
                self.wfile.flush()
            self.close_connection = True

        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"data": [{"id": MODEL, "object": "model"}]}).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the clients see each failure."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()

"""What a client has received: the texts of an answer in each API, whatever its events are called."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

from loadtests.gateways.replies import MODEL
from loadtests.servers import Target

DOORS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_REPORTS = ("error", "detail", "hook_results")
"""Fields in which a filter reports its decision. They may repeat the span, and are no part of the answer."""
_TOOL = {"type": "object", "properties": {"note": {"type": "string"}}}


class Received(NamedTuple):
    """An answer."""

    status: int
    texts: dict[str, str]
    """The texts of the answer by the place in which they stand, each joined over all events."""

    def has(self, span: str) -> bool:
        """Whether a text contains the span."""
        return any(span in text for text in self.texts.values())


def request_body(door: str, message: str, *, stream: bool) -> dict[str, Any]:
    """A request with one message and one tool."""
    messages = [{"role": "user", "content": message}]
    tool: dict[str, Any] = {"name": "note", "description": "Takes a note."}
    common: dict[str, Any] = {"model": MODEL, "stream": stream}
    if door == "chat":
        return {
            **common,
            "messages": messages,
            "tools": [{"type": "function", "function": tool | {"parameters": _TOOL}}],
        }
    if door == "messages":
        return {**common, "messages": messages, "max_tokens": 256, "tools": [tool | {"input_schema": _TOOL}]}
    return {**common, "input": message, "store": False, "tools": [{"type": "function", "parameters": _TOOL, **tool}]}


def ask(target: Target, door: str, body: dict[str, Any]) -> Received:
    """Sends a request and reads the whole answer. A stream that breaks has what has arrived."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {target.key or 'none'}", **target.headers}
    if door == "messages":
        headers |= {"anthropic-version": "2023-06-01", "x-api-key": target.key or "none"}
    connection = HTTPConnection("127.0.0.1", target.port, timeout=60)
    try:
        connection.request("POST", DOORS[door], json.dumps(body).encode(), headers)
        response = connection.getresponse()
        data = b""
        try:
            while piece := response.read1():
                data += piece
        except (HTTPException, OSError):
            pass
        return Received(response.status, texts_of(data))
    finally:
        connection.close()


def texts_of(data: bytes) -> dict[str, str]:
    """All texts of an answer or of the events of a stream, joined by the names of their fields."""
    texts: dict[str, str] = {}
    for line in data.splitlines():
        part = line.removeprefix(b"data:").strip()
        try:
            value = json.loads(part)
        except ValueError:
            continue
        kind = value.get("type", "") if isinstance(value, dict) else ""
        for path, text in _texts(value, str(kind)):
            texts[path] = texts.get(path, "") + text
    return texts


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in _REPORTS:
                continue
            yield from _texts(each, f"{path}.{name}")

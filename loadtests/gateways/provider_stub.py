"""Answers as OpenAI, Gemini and Bedrock do, without computing: `python -m loadtests.gateways.provider_stub PORT`.

Listens on both loopback addresses of a `Site`. Each provider has the same words and tokens. A request with tools is
answered by a call, and a stream has `CHUNKS` chunks with a gap of `GAP_S` between them.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from adapters.wire.bedrock.event_stream import encode_event

CHUNKS = 200
GAP_S = 0.003
PROMPT_TOKENS, ANSWER_TOKENS = 200, 60
TEXT = (
    "The quick brown fox jumps over the lazy dog. Inference gateways add overhead, and this fixed text stands in for "
    "a short model answer of roughly sixty tokens, so that proxies have a realistic amount of JSON to move."
)
CALL, ARGUMENTS = "look_up", {"table": "exports", "since": "2026-11-01T00:00:00Z", "limit": 20}
TOKEN = "T@1@"
"""The text of a chunk, as the load generator counts it."""
_CHUNK = {"id": "chatcmpl-mock0001", "object": "chat.completion.chunk", "created": 1700000000, "model": "mock"}
_OPENAI_USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": ANSWER_TOKENS,
    "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
}
_GEMINI_USAGE = {
    "promptTokenCount": PROMPT_TOKENS,
    "candidatesTokenCount": ANSWER_TOKENS,
    "totalTokenCount": PROMPT_TOKENS + ANSWER_TOKENS,
}
_BEDROCK_USAGE = {
    "inputTokens": PROMPT_TOKENS,
    "outputTokens": ANSWER_TOKENS,
    "totalTokens": PROMPT_TOKENS + ANSWER_TOKENS,
}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: mock\r\nx-amzn-RequestId: mock0001\r\n"


def _whole(body: Any) -> bytes:
    text = _json(body)
    return b"%bContent-Length: %d\r\n\r\n%b" % (_HEAD, len(text), text)


def _openai(*, calls: bool) -> bytes:
    function = {"name": CALL, "arguments": json.dumps(ARGUMENTS)}
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else TEXT}
    if calls:
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    finish = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return _whole({**_CHUNK, "object": "chat.completion", "choices": [choice], "usage": _OPENAI_USAGE})


def _gemini(*, calls: bool) -> bytes:
    part = {"functionCall": {"name": CALL, "args": ARGUMENTS, "id": "call_1"}} if calls else {"text": TEXT}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    about = {"modelVersion": "gemini-2.5-pro", "responseId": "mock0001"}
    return _whole({"candidates": [candidate], "usageMetadata": _GEMINI_USAGE, **about})


def _bedrock(*, calls: bool) -> bytes:
    call = {"toolUse": {"toolUseId": "call_1", "name": CALL, "input": ARGUMENTS}}
    message = {"role": "assistant", "content": [call if calls else {"text": TEXT}]}
    reason = "tool_use" if calls else "end_turn"
    return _whole(
        {
            "output": {"message": message},
            "stopReason": reason,
            "usage": _BEDROCK_USAGE,
            "metrics": {"latencyMs": 400},
        }
    )


def _openai_stream() -> list[bytes]:
    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % _json({**_CHUNK, "choices": [choice]})

    last = b"data: %b\n\n" % _json({**_CHUNK, "choices": [], "usage": _OPENAI_USAGE})
    return [
        chunk({"role": "assistant", "content": ""}),
        *[chunk({"content": TOKEN})] * CHUNKS,
        chunk({}, "stop") + last + b"data: [DONE]\n\n",
    ]


def _gemini_stream() -> list[bytes]:
    def chunk(text: str, more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
        about = {"usageMetadata": _GEMINI_USAGE, "modelVersion": "gemini-2.5-pro", "responseId": "mock0001"}
        return b"data: %b\r\n\r\n" % _json({"candidates": [candidate], **about})

    return [*[chunk(TOKEN, {})] * CHUNKS, chunk("", {"finishReason": "STOP"})]


def _bedrock_stream() -> list[bytes]:
    delta = _json({"contentBlockIndex": 0, "delta": {"text": TOKEN}, "p": "abcdefghijklmnopqrst"})
    stop, usage = _json({"stopReason": "end_turn"}), _json({"usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 400}})
    last = (("contentBlockStop", _json({"contentBlockIndex": 0})), ("messageStop", stop), ("metadata", usage))
    return [
        encode_event("messageStart", _json({"role": "assistant"})),
        *[encode_event("contentBlockDelta", delta)] * CHUNKS,
        b"".join([encode_event(name, payload) for name, payload in last]),
    ]


def _pieces(content_type: str, chunks: Sequence[bytes]) -> list[bytes]:
    """The writes of a stream."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nServer: mock\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    return [head.encode() + framed[0], *framed[1:-1], framed[-1] + b"0\r\n\r\n"]


_READY = _whole({"object": "list", "data": []})
_ANSWERS = {
    b"/v1/chat/completions": (_openai(calls=False), _openai(calls=True)),
    b":generateContent": (_gemini(calls=False), _gemini(calls=True)),
    b"/converse": (_bedrock(calls=False), _bedrock(calls=True)),
}
_STREAMS = {
    b"/v1/chat/completions": _pieces("text/event-stream", _openai_stream()),
    b":streamGenerateContent": _pieces("text/event-stream", _gemini_stream()),
    b"/converse-stream": _pieces("application/vnd.amazon.eventstream", _bedrock_stream()),
}


class _Connection(asyncio.Protocol):
    """One client, with one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            return
        lower = head.lower()
        size = int(lower.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or 0)
        if len(body) < size:
            return
        self._received.clear()
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        for end, pieces in _STREAMS.items():
            if path.endswith(end) and (end != b"/v1/chat/completions" or b'"stream":true' in body.replace(b" ", b"")):
                self._stream(pieces, 0)
                return
        for end, answers in _ANSWERS.items():
            if path.endswith(end):
                self._transport.write(answers[b'"tools"' in body])
                return
        self._transport.write(_READY)

    def _stream(self, pieces: Sequence[bytes], at: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(pieces[at])
        if at + 1 < len(pieces):
            self._loop.call_later(GAP_S, self._stream, pieces, at + 1)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, ["127.0.0.1", "127.0.0.2"], port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))

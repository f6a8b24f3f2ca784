"""Anthropic's Messages at Bedrock: `InvokeModel`, whose streams have frames instead of server-sent events."""

import base64
from typing import Any

import msgspec

from adapters.http1.message import Headers
from adapters.ignored_fields import IgnoredFields
from adapters.paths import segment
from adapters.upstreams.anthropic.hosts import IN_CLOUDS, Body, CloudHost
from adapters.wire import decoding
from adapters.wire.bedrock import errors
from adapters.wire.bedrock.event_stream import CONTENT_TYPE, BrokenFrame, FrameSplitter
from adapters.wire.error_table import ErrorBody

_COUNT_MAX_TOKENS = 1
"""A count needs a whole message."""


class _Chunk(msgspec.Struct):
    bytes: str = ""


class _Type(msgspec.Struct):
    type: str = ""


class _Count(msgspec.Struct):
    inputTokens: int  # noqa: N815  # the wire's name


_encode = msgspec.json.Encoder().encode
_chunk = msgspec.json.Decoder(_Chunk).decode
_type = msgspec.json.Decoder(_Type).decode
_count = msgspec.json.Decoder(_Count).decode


class BedrockHost(CloudHost):
    """Bedrock: model and streaming in the path, betas in the body."""

    streamed = CONTENT_TYPE
    _accepted = IN_CLOUDS | {
        "dev-full-thinking-2025-05-14", "effort-2025-11-24", "fine-grained-tool-streaming-2025-05-14",
        "mid-conversation-output-config-2026-07-01", "mid-conversation-tool-changes-2026-07-01",
        "output-128k-2025-02-19", "token-efficient-tools-2025-02-19", "tool-examples-2025-10-29",
    }  # fmt: skip

    def message(self, model: str, *, stream: bool) -> bytes:
        return f"{self.base}/model/{segment(model)}/invoke{'-with-response-stream' if stream else ''}".encode()

    def count(self, model: str) -> bytes:
        return f"{self.base}/model/{segment(model)}/count-tokens".encode()

    def beta_fields(self, betas: list[str]) -> list[tuple[str, str]]:
        return []

    def body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        fields = self._fields_here(message, ignored)
        fields.pop("stream", None)
        own: dict[str, Any] = {"anthropic_version": self._version}
        if betas:
            own["anthropic_beta"] = betas
        return _encode({**own, **fields})

    def count_body(self, message: Body, betas: list[str], ignored: IgnoredFields) -> bytes:
        counted = self.body({**message, "max_tokens": _COUNT_MAX_TOKENS}, betas, ignored)
        return _encode({"input": {"invokeModel": {"body": base64.b64encode(counted).decode()}}})

    def count_of(self, body: bytes) -> bytes:
        return _encode({"input_tokens": _count(body).inputTokens})

    def splitter(self, limit: int) -> "FrameEvents":
        return FrameEvents(limit)

    def error(self, headers: Headers, body: bytes) -> ErrorBody:
        return errors.decode(headers.get(errors.TYPE_HEADER), body)


class FrameEvents:
    """Splits a stream of frames into the server-sent events that Anthropic's own API would send."""

    __slots__ = ("_broken", "_frames")

    def __init__(self, limit: int) -> None:
        self._frames = FrameSplitter(limit * 4 // 3 + 4096)  # base64 in JSON
        self._broken = ""

    @property
    def halfway(self) -> bool:
        """Whether a frame is incomplete, or cannot be read."""
        return self._frames.halfway or bool(self._broken)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes. Raises `BackendError` for a frame that cannot be read, after the
        events before it."""
        events: list[bytes] = []
        try:
            if not self._broken:
                for frame in self._frames.feed(data):
                    if frame.kind != "event":
                        events.append(_failed(errors.of_frame(frame)))
                    elif event := _event(frame.payload):
                        events.append(event)
        except BrokenFrame as error:
            self._broken = str(error)
        except (*decoding.MALFORMED_JSON, ValueError):
            self._broken = "a chunk has no event"
        if self._broken and not events:
            raise decoding.bad_response(f"The upstream's stream cannot be read: {self._broken}.")
        return events


def _event(payload: bytes) -> bytes:
    """The event in a chunk; empty for a chunk without one."""
    data = base64.b64decode(_chunk(payload).bytes, validate=True)
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return b"event: %b\ndata: %b" % (_type(data).type.encode(), data) if data else b""


def _failed(error: ErrorBody) -> bytes:
    data = {"type": "error", "error": {"type": error.type or "api_error", "message": error.message or ""}}
    return b"event: error\ndata: %b" % _encode(data)

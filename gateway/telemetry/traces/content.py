"""The content of a traced request, on a route that opts in: redacted, bounded, and only for exported traces."""

from __future__ import annotations

from typing import Any

import msgspec

from adapters import offload
from adapters.answer import Answer, TappedAnswer
from adapters.errors import InferenceError
from adapters.requests import EmbeddingRequest, GenerateRequest, ModelRequest
from adapters.spans import Attribute, Span, SpanLog
from adapters.wire import decoding
from config.schema.telemetry import TraceContentConfig
from gateway.telemetry.redaction.streams import events_of, texts_of
from gateway.telemetry.redaction.texts import compiled
from gateway.telemetry.traces import messages

MOST_BYTES = 256 * 1024
"""Bytes of a body, and of an answer, that are held for a trace. Of a larger one there is no content."""
INLINE = 16 * 1024
"""Bytes that are redacted on the event loop. More are redacted in a worker process."""
_encode = msgspec.json.Encoder().encode


class TraceContent:
    """The request and the answer, until the trace is exported or dropped."""

    __slots__ = ("_answer", "_config", "_pieces", "_request", "omitted", "size")

    def __init__(self, config: TraceContentConfig, request: GenerateRequest) -> None:
        self._config = config
        self._request = request
        self._answer: Answer | None = None
        self._pieces: list[bytes] = []
        self.size = request.size
        """Bytes that it holds."""
        self.omitted = request.size > MOST_BYTES
        """Whether the content is too large."""

    def tap(self, answer: Answer) -> Answer:
        """The answer, whose bytes are held while the client reads them."""
        if answer.form.encoding:
            return answer
        self._answer = answer
        if answer.body is None:
            return TappedAnswer(answer, self)
        self.add(answer.body)
        return answer

    def add(self, piece: bytes) -> None:
        """Hold a piece of the answer."""
        self.size += len(piece)
        if self.size > 2 * MOST_BYTES:
            self.omit()
        else:
            self._pieces.append(piece)

    def omit(self) -> None:
        """Release the content."""
        self.omitted, self.size = True, 0
        self._pieces.clear()

    async def attributes(self) -> dict[str, Attribute]:
        """The attributes of the conventions, redacted and bounded."""
        if self.omitted:
            return {"headrace.content_omitted": True}
        answer, data = self._answer, b"".join(self._pieces)
        streams = answer is not None and answer.content_type.startswith("text/event-stream")
        try:
            body = _encode(self._request.fields)
            arguments = (body, data, streams, self._config.redact, self._config.max)
            if len(body) + len(data) < INLINE:
                return dict(redacted(*arguments))
            return dict(await offload.run(max(len(body) + len(data), offload.LARGE), redacted, *arguments))
        except (InferenceError, RuntimeError, ValueError):
            # Too many large bodies wait, there is no equivalent chat, or the body is nested too deeply to be read.
            return {"headrace.content_omitted": True}


def traced_content(config: TraceContentConfig, request: ModelRequest, log: SpanLog, span: Span) -> TraceContent | None:
    """Add the content of a request to a span of the log; None for a request without texts of a conversation."""
    if not isinstance(request, GenerateRequest) or isinstance(request, EmbeddingRequest):
        return None
    content = TraceContent(config, request)
    log.contents += ((span, content),)
    return content


def redacted(body: bytes, answer: bytes, streams: bool, redact: tuple[str, ...], most: int) -> dict[str, str]:
    """The attributes of a request and its answer, perhaps in a worker process."""
    redaction = compiled(redact)
    fields: Any = redaction.json(msgspec.json.decode(body))
    outputs: list[messages.Message] = []
    if streams:
        reasons = messages.finish_reasons(events_of(answer))
        outputs = messages.streamed_messages(redaction.json({"texts": texts_of(answer)})["texts"], reasons)
    elif answer:
        try:
            decoded = redaction.json(msgspec.json.decode(answer))
        except decoding.MALFORMED_JSON:
            decoded = None
        outputs = messages.output_messages(decoded) if isinstance(decoded, dict) else []
    instructions, inputs = messages.input_messages(fields)
    groups = (
        ("gen_ai.system_instructions", instructions),
        ("gen_ai.input.messages", inputs),
        ("gen_ai.output.messages", outputs),
        ("gen_ai.tool.definitions", messages.tool_definitions(fields)),
    )
    return messages.attributes(groups, most)

"""Answers that a guard writes instead of a model's, in the form of a server that speaks OpenAI's API."""

import time

from msgspec import Raw
from msgspec.structs import replace

from adapters.answer import Answer
from adapters.call import Call
from adapters.requests import ChatRequest, CompletionRequest, ModelRequest
from adapters.stream import OnePiece
from adapters.types import OPENAI, Usage
from adapters.wire.text.generated_text import TextEncoder
from gateway.traffic.guarded.guard import ContentReplaced

REASON = "content_filter"


def has_text(request: ModelRequest) -> bool:
    """Whether the answer to a request is a text of a chat or a completion, so that another text can be it."""
    return isinstance(request, ChatRequest | CompletionRequest)


def answer_of(request: ModelRequest, text: str, usage: Usage) -> Answer:
    """The answer with a text. The usage is that of the answer that it replaces."""
    assert isinstance(request, ChatRequest | CompletionRequest)
    encoder = TextEncoder(request, id_=f"{time.time_ns():x}", created=int(time.time()))
    if not request.stream:
        return Answer(content_type="application/json", body=encoder.whole(text, REASON, usage), usage=usage)
    events = encoder.opening() + encoder.piece(text) + encoder.end(REASON, usage)
    return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)


def without_prompt(request: ModelRequest) -> ModelRequest:
    """The request without the text that a guard has found: recordings and traces have no other one. Raises
    `CallerError` if no chat is equivalent."""
    assert isinstance(request, ChatRequest | CompletionRequest)
    name, empty = ("messages", b"[]") if isinstance(request, ChatRequest) else ("prompt", b'""')
    return replace(request.with_fields({**request.fields, name: Raw(empty)}), prompt=memoryview(empty))


class ReplacedPrompt:
    """The upstream of a request whose prompt a guard has found: no server receives it."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return answer_of(request, self._text, Usage(exact=True))


def instead(request: ModelRequest, answer: Answer, error: ContentReplaced) -> Answer:
    """The replacement of a whole answer. Raises the error itself where no text can be the answer."""
    if not has_text(request):
        raise error
    made = answer_of(request, error.text, answer.usage)
    made.pool, made.endpoint = answer.pool, answer.endpoint
    return made

"""Converts chats to completions, and completions to chats, for servers that support only one of them."""

from collections.abc import Callable
from typing import Literal

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import CallerError
from adapters.requests import ChatRequest, CompletionRequest, ModelRequest
from adapters.upstreams.text.prompts import Prompts
from adapters.upstreams.transcoded_stream import TranscodedStream
from adapters.wire import sse
from adapters.wire.field_names import CHAT, COMPLETION
from adapters.wire.openai.chat import DONE
from adapters.wire.text import chat_translation as translation

Kind = Literal["chats", "completions"]
Chunk = Callable[[bytes], bytes]


class OneKind:
    """A wrapper of an adapter whose server supports only one kind of request."""

    def __init__(self, inner: Adapter, only: Kind, prompts: Prompts, max_tokens: int) -> None:
        self._inner = inner
        self._only = only
        self._prompts = prompts
        self._max_tokens = max_tokens

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        """Convert and execute a request. Errors name the fields of the client's kind."""
        try:
            return await self._translated(request, call)
        except CallerError as error:
            if self._only == "completions" and isinstance(request, ChatRequest):
                error.message, error.param = CHAT.sentence(error.message), error.param and CHAT.field(error.param)
            elif self._only == "chats" and isinstance(request, CompletionRequest):
                COMPLETION.of(error)
            raise

    async def _translated(self, request: ModelRequest, call: Call) -> Answer:
        if self._only == "completions" and isinstance(request, ChatRequest):
            completion = translation.completion_of(request, self._prompts.of(request), self._max_tokens, call.ignored)
            begun = set[bytes]()
            answer = await self._inner.call(completion, call)
            return await _translated_answer(
                answer, translation.chat_body, lambda data: translation.chat_chunk(data, begun)
            )
        if self._only == "chats" and isinstance(request, CompletionRequest):
            answer = await self._inner.call(translation.chat_of(request, call.ignored), call)
            return await _translated_answer(answer, translation.completion_body, translation.completion_chunk)
        return await self._inner.call(request, call)

    async def probe(self, timeout: float) -> None:
        await self._inner.probe(timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _translated_answer(answer: Answer, body: Chunk, chunk: Chunk) -> Answer:
    if answer.body is None:
        return await TranslatedStream(answer, chunk).begun()
    return Answer(content_type=answer.content_type, body=body(answer.body), usage=answer.usage)


class TranslatedStream(TranscodedStream):
    """A stream that converts each chunk, up to `[DONE]`."""

    __slots__ = ("_chunk",)

    def __init__(self, inner: Answer, chunk: Chunk) -> None:
        super().__init__(inner, inner.usage)
        self._chunk = chunk

    def _take(self, data: bytes) -> bytes:
        self.usage = self._inner.usage
        if data == DONE:
            self._done = True
            return sse.encode(DONE)
        return sse.encode(self._chunk(data))

"""Marks the prompts of a pool for the cache of its provider."""

from msgspec.structs import replace

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.requests import ChatRequest, ModelRequest
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.prompt_cache import Breakpoints, marked_chat, marked_message
from config.schema.config import PromptCacheConfig


class PromptCache:
    """An `Upstream` that marks chats and messages. A client's own marks are left as they are."""

    def __init__(self, upstream: Upstream, config: PromptCacheConfig) -> None:
        self._upstream = upstream
        self._points = Breakpoints(config.system, config.tools, config.turns, config.ttl, config.min_tokens)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._upstream.call(self.marked(request), call)

    def marked(self, request: ModelRequest) -> ModelRequest:
        """The request with marks."""
        if isinstance(request, MessagesRequest) and not request.payload.reworded:
            payload = request.payload
            native = marked_message(payload.native, self._points)
            return request if native is payload.native else replace(request, payload=replace(payload, native=native))
        if isinstance(request, ChatRequest):
            return request.with_fields(marked_chat(request.fields, self._points))
        return request

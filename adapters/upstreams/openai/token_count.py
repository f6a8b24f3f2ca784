"""Counts the tokens of a prompt with vLLM's `/tokenize`, which the bundled runtime and some other servers support."""

import msgspec

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.http1.client import Client
from adapters.offload import messages
from adapters.types import ANTHROPIC, Usage
from adapters.upstreams.failed_status import is_answer, upstream_error
from adapters.wire import decoding
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai.thinking import thinking_of_message

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes of a response, which lists every token."""
RETRY_SECONDS = 60.0
_PROMPT = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")
_REFUSED = frozenset({400, 422})
_NO_SUCH_PATH = frozenset({401, 403, 404, 405, 501})

_encode = msgspec.json.Encoder().encode


class _Tokens(msgspec.Struct):
    count: int


_tokens = msgspec.json.Decoder(_Tokens).decode


class TokenCounter:
    """Token counts of one endpoint. A missing path is not requested again for `RETRY_SECONDS`."""

    def __init__(self, client: Client, target: bytes, fields: bytes, model: str | None) -> None:
        self._client = client
        self._fields = fields
        self._model = model
        self._target = target
        self._none_until = 0.0

    async def count(self, request: TokenCount, call: Call, *, thinks: bool = False) -> Answer:
        """Count the tokens of a prompt. Raises `Unsupported` if the server cannot count them.

        `thinks`: the template of the server has variables for thinking.
        """
        now = self._client.now()
        if now < self._none_until:
            raise _cannot(request)
        await messages.translate(request.chat, call.ignored)
        fields = request.chat.fields
        model = _encode(self._model) if self._model is not None else bytes(fields["model"])
        body = {name: fields[name] for name in _PROMPT if name in fields} | {"model": msgspec.Raw(model)}
        if thinks and isinstance(request.chat, NativeChat):
            body |= thinking_of_message(request.chat.payload.thinking, fields, "template")
        response = await self._client.request(b"POST", self._target, self._fields, _encode(body), call.deadline)
        try:
            content = await response.read(MAX_ANSWER)
        finally:
            response.close()
        if response.status in _NO_SUCH_PATH:
            self._none_until = now + RETRY_SECONDS
        if response.status in _NO_SUCH_PATH or response.status in _REFUSED:
            raise _cannot(request)
        if not is_answer(response.status):
            raise upstream_error(response.status, response.headers)
        try:
            count = _tokens(content).count
        except decoding.MALFORMED_JSON:
            raise _cannot(request) from None  # the path has another meaning on this server
        counted = _encode({"input_tokens": count})
        return Answer(content_type="application/json", body=counted, usage=Usage(exact=True), form=ANTHROPIC)


def _cannot(request: TokenCount) -> Unsupported:
    return Unsupported(f"The servers of `{request.model}` do not count tokens.")

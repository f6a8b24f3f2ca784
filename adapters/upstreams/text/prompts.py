"""The prompt of a request, for servers that accept only prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.errors import Unsupported
from adapters.registry import MissingExtra
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest
from adapters.wire.text import prompt_request
from config.installing import installing
from config.schema.protocols.language import OpenAIProtocol, PromptProtocol

if TYPE_CHECKING:
    from adapters.upstreams.text.chat_template import PromptTemplate  # needs an extra


class Prompts:
    """Prompts for one pool: a chat is rendered with the pool's template, a completion has its own prompt."""

    def __init__(self, template: PromptTemplate | None = None) -> None:
        self._template = template

    def of(self, request: GenerateRequest) -> str:
        """Return the prompt of a request. Raises `CallerError` for a request that a prompt cannot express."""
        if isinstance(request, ChatRequest):
            if self._template is None:
                raise Unsupported(
                    f"The model `{request.model}` takes prompts: use /v1/completions. Its pool has no `chat_template`."
                )
            return self._template.prompt(request)
        assert isinstance(request, CompletionRequest)
        return prompt_request.prompt(request)


def prompts(section: PromptProtocol | OpenAIProtocol) -> Prompts:
    """Return the prompts of a protocol's configuration. Raises `Unmakeable`."""
    if section.chat_template is None:
        return Prompts()
    try:
        from adapters.upstreams.text import chat_template
    except ImportError:
        raise MissingExtra(f"chat_template needs Jinja: {installing('templates')}") from None
    return Prompts(chat_template.load(section.chat_template, section.bos_token))

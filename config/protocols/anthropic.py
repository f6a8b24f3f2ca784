"""Anthropic's Messages: its own API, and servers of open models with the same API."""

from typing import Annotated, Literal

from pydantic import Field

from config.protocols.base import ProtocolConfig
from config.schema.text import Shape

Version = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "a version such as 2023-06-01")]
Beta = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "the name of a beta, such as context-1m-2025-08-07")]


class AnthropicProtocol(ProtocolConfig):
    """Anthropic's Messages API, ``/v1/messages``. The pool's ``key`` is sent as ``x-api-key``."""

    @property
    def key_header(self) -> str:
        return "x-api-key"

    name: Literal["anthropic"]
    """Selects this protocol."""
    version: Version = "2023-06-01"
    """Value of the header ``anthropic-version``."""
    betas: tuple[Beta, ...] = ()
    """Values of ``anthropic-beta`` on every request, beside those of the client."""
    max_tokens: int = Field(4096, ge=1)
    """Longest answer to a chat that sets no maximum; the API requires one."""

"""Anthropic's Messages, as its own API and some servers of open models speak them."""

from typing import Annotated, Literal

from pydantic import Field

from config.protocols.base import ProtocolConfig
from config.schema.text import Shape

Version = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "a version such as 2023-06-01")]
Beta = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "the name of a beta, such as context-1m-2025-08-07")]


class AnthropicProtocol(ProtocolConfig):
    """``/v1/messages``. The pool's ``key`` is sent as ``x-api-key``."""

    @property
    def key_header(self) -> str:
        return "x-api-key"

    name: Literal["anthropic"]
    """Anthropic's Messages API."""
    version: Version = "2023-06-01"
    """Sent as ``anthropic-version``."""
    betas: tuple[Beta, ...] = ()
    """Sent as ``anthropic-beta`` with every request, beside those that the client itself names."""
    max_tokens: int = Field(4096, ge=1)
    """The longest answer to a chat that names no length: a message must have one."""

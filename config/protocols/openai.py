"""OpenAI's HTTP API, which most servers of text speak."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class OpenAIProtocol(ProtocolConfig):
    """``/v1/chat/completions`` and its like."""

    resumes = True

    name: Literal["openai"] = "openai"
    """OpenAI's API."""
    responses: bool = False
    """Whether the endpoints know ``/v1/responses`` themselves. For a model of such pools only they are asked there; for
    any other the gateway makes a chat of it."""

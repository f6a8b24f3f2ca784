"""OpenAI's HTTP API, which most servers of text speak."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.protocols.base import ProtocolConfig
from config.protocols.prompts import Template


class OpenAIProtocol(ProtocolConfig):
    """``/v1/chat/completions`` and its like."""

    resumes = True

    name: Literal["openai"] = "openai"
    """OpenAI's API."""
    responses: bool = False
    """Whether the endpoints know ``/v1/responses`` themselves. For a model of such pools only they are asked there; for
    any other the gateway makes a chat of it."""
    only: Literal["chats", "completions"] | None = None
    """What the endpoints have, where it is not both. The other is made of it: of a chat a completion, by the
    `chat_template`; of a completion a chat, whose one message is the prompt."""
    chat_template: Template | None = None
    """With ``only: completions``: the template that makes a chat a prompt, as of ``tgi``. Without it chats are
    refused."""
    bos_token: str = Field("", max_length=256)
    """What that template writes as a text's beginning. Empty, because servers put it before every prompt themselves."""
    max_tokens: int = Field(1024, ge=1)
    """With ``only: completions``: how long the answer to a chat may be that does not say. A completion would end after
    16 tokens."""

    @model_validator(mode="after")
    def _template_for_completions(self) -> Self:
        given = {"chat_template", "bos_token", "max_tokens"} & self.model_fields_set
        if given and self.only != "completions":
            raise ValueError(f"{min(given)} is for servers that have completions only: write only: completions too")
        return self

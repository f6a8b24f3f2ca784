"""Amazon Bedrock's runtime: Converse, and InvokeModel for embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.protocols.base import ProtocolConfig
from config.schema.protocols.language import Beta
from config.schema.section import Section
from config.schema.text import Shape

Region = Annotated[str, Shape(r"[a-z]{2,5}(-[a-z]{2,12}){1,3}-[0-9]{1,2}", "a region such as eu-central-1")]
Family = Literal["anthropic", "nova", "openai", "mistral", "titan-v1", "titan-v2", "cohere-v3", "cohere-v4", "other"]


class GuardrailConfig(Section):
    """A guardrail of the account."""

    id: Annotated[str, Shape(r"[a-zA-Z0-9:/-]{1,2048}", "a guardrail's id or ARN")]
    """Id or ARN of the guardrail."""
    version: Annotated[str, Shape(r"[1-9][0-9]{0,7}|DRAFT", "a number or DRAFT")] = "DRAFT"
    """Version of the guardrail."""
    mode: Literal["sync", "async"] = "sync"
    """How streams are checked: ``sync`` holds text back until it is checked, ``async`` sends it at once."""


class BedrockProtocol(ProtocolConfig):
    """Amazon Bedrock's runtime, ``https://bedrock-runtime.REGION.amazonaws.com``. Chats use Converse, embeddings use
    InvokeModel. ``key`` is a Bedrock API key."""

    @property
    def prompt_caches(self) -> Literal["marks", "contents"] | None:
        return "marks"

    name: Literal["bedrock"]
    """Selects this protocol. The pool's ``model`` is a model's id, an inference profile or an ARN."""
    region: (
        Annotated[str, Shape(r"[a-z]{2,5}(-[a-z]{2,12}){1,3}-[0-9]{1,2}", "a region such as eu-central-1")] | None
    ) = None
    """Region of the signatures, if an endpoint's host name has none. Without ``endpoints`` the address follows from
    it."""
    family: Family | None = None
    """Maker of the model, which decides the names of thinking, ``top_k`` and fields of embeddings. When absent, the
    model's id tells it. The ARN of an application inference profile does not."""
    guardrail: GuardrailConfig | None = None
    """Guardrail that checks every chat. Its verdict ends an answer as ``content_filter``."""
    latency: Literal["standard", "optimized"] | None = None
    """Latency of the inference; ``optimized`` exists for some models."""
    betas: tuple[Beta, ...] = ()
    """Values of ``anthropic_beta`` for Anthropic's models, beside those of the client that Bedrock has."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest answer to a chat that sets no maximum. When absent, the model's own."""

    @property
    def url(self) -> str | None:
        if self.region is None:
            return None
        return f"https://bedrock-runtime.{self.region}.amazonaws.com{'.cn' if self.region.startswith('cn-') else ''}"

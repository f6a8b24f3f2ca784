"""OpenAI's HTTP API, which most servers of text speak."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.protocols.base import ProtocolConfig
from config.protocols.prompts import Template
from config.schema.text import Shape

Call = Literal["rerank", "score", "tokenize", "audio", "images", "moderations"]


class OpenAIProtocol(ProtocolConfig):
    """``/v1/chat/completions`` and its like."""

    resumes = True

    name: Literal["openai"] = "openai"
    """OpenAI's API."""
    dialect: Literal[
        "auto", "openai", "azure", "mistral", "groq", "vllm", "sglang", "llama.cpp", "ollama", "lm-studio",
        "tensorrt-llm", "tgi", "openvino", "kserve",
    ] = "auto"  # fmt: skip
    """Whose it is: paths, health, names of fields. ``auto``: as a server's list of models tells, and until then as most
    servers are. OpenAI's own, Azure's, Groq's, TGI's, KServe's and OpenVINO's cannot be told and must be named."""
    api_version: Annotated[str, Shape(r"[A-Za-z0-9.-]{1,64}", "a version such as 2024-10-21")] | None = None
    """Azure's: its models are deployments then, ``/openai/deployments/MODEL/…?api-version=``. When absent, they are
    below ``/openai/v1``."""
    share_prefixes: bool = False
    """Whether the prompts of all tenants share the servers' prefix caches. A tenant can then find out by the time to an
    answer's first token how another tenant's prompts begin. Else the gateway sends each tenant's own ``cache_salt`` to
    servers that know it: vLLM and SGLang."""
    length: Literal["max_tokens", "max_completion_tokens"] | None = None
    """The name by which its chats take an answer's length; when absent, the dialect's, or the client's."""
    passes: tuple[Call, ...] = ()
    """Calls beside text that the endpoints know, which are passed on as they are."""
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

    @property
    def key_header(self) -> str:
        """Azure's is its own."""
        return "api-key" if self.dialect == "azure" else "authorization"

    @model_validator(mode="after")
    def _of_azure(self) -> Self:
        if self.api_version is not None and self.dialect != "azure":
            raise ValueError("api_version is Azure's: it needs dialect azure")
        return self

    @model_validator(mode="after")
    def _salted(self) -> Self:
        if self.share_prefixes and self.dialect not in ("auto", "vllm", "sglang"):
            raise ValueError(f"share_prefixes has no effect: no salt is sent to servers of the dialect {self.dialect}")
        return self

    @model_validator(mode="after")
    def _template_for_completions(self) -> Self:
        given = {"chat_template", "bos_token", "max_tokens"} & self.model_fields_set
        if given and self.only != "completions":
            raise ValueError(f"{min(given)} is for servers that have completions only: write only: completions too")
        return self

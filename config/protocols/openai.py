"""OpenAI's HTTP API, which most servers of text speak."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.protocols.base import ProtocolConfig
from config.protocols.prompts import Template
from config.schema.text import ProbePath, Shape

Call = Literal["rerank", "score", "tokenize", "audio", "images", "moderations"]


class OpenAIProtocol(ProtocolConfig):
    """OpenAI's API: ``/v1/chat/completions`` and the related paths."""

    resumes = True

    name: Literal["openai"] = "openai"
    """Selects this protocol."""
    dialect: Literal[
        "auto", "openai", "azure", "mistral", "groq", "vllm", "sglang", "llama.cpp", "ollama", "lm-studio",
        "tensorrt-llm", "tgi", "openvino", "kserve", "gemini",
    ] = "auto"  # fmt: skip
    """Kind of server, which determines paths, health checks and names of fields. ``auto`` detects it from the list of
    models, and uses the common form until then. OpenAI's own, Azure, Groq, TGI, KServe and OpenVINO cannot be detected
    and must be named."""
    api_version: Annotated[str, Shape(r"[A-Za-z0-9.-]{1,64}", "a version such as 2024-10-21")] | None = None
    """With ``dialect: azure``: uses deployments, ``/openai/deployments/MODEL/…?api-version=``. When absent, models are
    under ``/openai/v1``."""
    root: ProbePath | None = None
    """Path of the API below the URL of an endpoint: ``/v1beta/openai``, or ``/`` if the URL itself is the API's root.
    When absent, a root at the end of the URL counts: one with a version (``/v1``, ``/v1beta/openai``, ``/v1/openai``),
    Cloudflare's ``/compat``, Vertex AI's ``/endpoints/openapi`` or Databricks' ``/serving-endpoints``. Otherwise it is
    the dialect's, such as ``/v1``, below the URL."""
    share_prefixes: bool = False
    """Whether prompts of all tenants share the servers' prefix caches. A tenant can then infer from the time to the
    first token how another tenant's prompts begin. Otherwise the gateway sends a ``cache_salt`` for each tenant to
    servers that support it: vLLM and SGLang."""
    length: Literal["max_tokens", "max_completion_tokens"] | None = None
    """Field name for the longest answer of a chat; the dialect's, or the client's, when absent."""
    passes: tuple[Call, ...] = ()
    """Further calls that the endpoints support, forwarded unchanged."""
    responses: bool = False
    """Whether the endpoints support ``/v1/responses``. If all pools of a model do, requests are forwarded there;
    otherwise the gateway converts them to chats."""
    only: Literal["chats", "completions"] | None = None
    """The only operation of the endpoints, if they do not support both. The other is converted: a chat to a completion
    with `chat_template`, a completion to a chat with the prompt as its only message."""
    chat_template: Template | None = None
    """With ``only: completions``: the template that converts a chat to a prompt, as for ``tgi``. Without it chats are
    refused."""
    bos_token: str = Field("", max_length=256)
    """Beginning-of-text token for the template. Empty, because servers add it to every prompt."""
    max_tokens: int = Field(1024, ge=1)
    """With ``only: completions``: longest answer to a chat that sets no maximum. A completion would end after 16
    tokens."""

    @property
    def key_header(self) -> str:
        """Azure's is its own."""
        return "api-key" if self.dialect == "azure" else "authorization"

    @model_validator(mode="after")
    def _of_azure(self) -> Self:
        if self.api_version is not None and self.dialect != "azure":
            raise ValueError("api_version is Azure's: it needs dialect azure")
        if self.api_version is not None and self.root is not None:
            raise ValueError("root has no effect with api_version, which has paths of its own")
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

"""Servers of language models: OpenAI's API and its dialects, Anthropic's Messages, and servers of prompts."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.embeddings import TensorName
from config.schema.protocols.base import ProtocolConfig
from config.schema.protocols.google import vertex_host
from config.schema.text import ProbePath, Shape

Template = Annotated[
    str,
    Shape(
        r"file:\S.{0,1023}|(?!file:)\S.{0,1023}", "chatml or another bundled name, file:PATH, or a tokenizer's folder"
    ),
]


class PromptProtocol(ProtocolConfig):
    """A chat becomes a prompt by a template. Needs the extra ``templates``."""

    chat_template: Template | None = None
    """Template that converts a chat to a prompt: a bundled one (``chatml``, ``gemma``, ``llama2``, ``llama3``,
    ``mistral`` or ``zephyr``), ``file:PATH``, or the folder of a model's tokenizer, relative to the working directory.
    Without it chats are refused and completions served. Needs the extra ``templates``."""
    bos_token: str = Field("", max_length=256)
    """Beginning-of-text token for the template. Empty, because servers add it to every prompt."""


Ranking = Literal["rerank", "score", "classify"]
"""Forwarded calls whose rows and tokens are counted."""
Call = Literal["rerank", "score", "tokenize", "audio", "images", "moderations", "classify", "ocr"]


class OpenAIProtocol(ProtocolConfig):
    """OpenAI's API: ``/v1/chat/completions`` and the related paths."""

    resumes = True

    name: Literal["openai"] = "openai"
    """Selects this protocol."""
    dialect: Literal[
        "auto", "openai", "azure", "mistral", "groq", "vllm", "sglang", "llama.cpp", "ollama", "lm-studio",
        "tensorrt-llm", "tgi", "openvino", "kserve", "gemini", "vertex", "bedrock", "deepseek", "xai", "openrouter",
        "together", "fireworks", "cerebras", "perplexity", "cohere", "moonshot", "zai", "dashscope", "deepinfra",
        "github", "databricks", "huggingface", "cloudflare",
    ] = "auto"  # fmt: skip
    """Kind of server, which determines paths, health checks and names of fields. ``auto`` recognises a hosted API by
    its host and any other server by its list of models, and uses the common form until then. A hosted API behind
    another host, TGI, KServe and OpenVINO must be named."""
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
    def key_headers(self) -> tuple[str, ...]:
        """Azure's is its own."""
        return ("api-key",) if self.dialect == "azure" else ("authorization",)

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


Version = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "a version such as 2023-06-01")]
Beta = Annotated[str, Shape(r"[A-Za-z0-9._-]{1,64}", "the name of a beta, such as context-1m-2025-08-07")]


Part = Annotated[str, Shape(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", "a name, without spaces and slashes")]
_VERSIONS = {"vertex": "vertex-2023-10-16", "bedrock": "bedrock-2023-05-31"}
_OWN_FIELDS = {"project": "vertex", "location": "vertex", "workspace": "aws"}


class AnthropicProtocol(ProtocolConfig):
    """Anthropic's Messages API, ``/v1/messages``, of Anthropic itself or of a cloud. The pool's ``key`` is sent as
    ``x-api-key``, to Vertex AI and Bedrock as a Bearer token."""

    @property
    def prompt_caches(self) -> Literal["marks", "contents"] | None:
        return "marks"

    name: Literal["anthropic"]
    """Selects this protocol."""
    at: Literal["vertex", "bedrock", "aws", "foundry"] | None = None
    """Cloud that serves the messages: Vertex AI, Bedrock, Claude Platform on AWS, or Microsoft Foundry. Anthropic's own
    API when absent. Without ``endpoints`` the address follows from ``location`` or ``region``."""
    project: Part | None = None
    """With ``at: vertex``: the Google Cloud project."""
    location: Part | None = None
    """With ``at: vertex``: a region, ``us``, ``eu`` or ``global``, which is the default."""
    region: Part | None = None
    """With ``at: bedrock`` or ``at: aws``: the AWS region, such as ``us-east-1``."""
    workspace: Part | None = None
    """With ``at: aws``: the id of the workspace."""
    version: Version | None = None
    """Value of the header ``anthropic-version``, 2023-06-01 when absent. For Vertex AI and Bedrock the value of the
    body's ``anthropic_version``, vertex-2023-10-16 and bedrock-2023-05-31 when absent."""
    betas: tuple[Beta, ...] = ()
    """Betas of every request, beside those of the client. Betas of a client that the cloud is known to refuse are left
    out; those written here are always sent."""
    max_tokens: int = Field(4096, ge=1)
    """Longest answer to a chat that sets no maximum; the API requires one."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        if self.at == "foundry":
            return ("x-api-key", "api-key")
        return ("authorization",) if self.at in ("vertex", "bedrock") else ("x-api-key",)

    @property
    def its_version(self) -> str:
        """The version of the messages."""
        return self.version or _VERSIONS.get(self.at or "", "2023-06-01")

    @property
    def place(self) -> str:
        """Vertex AI's location."""
        return self.location or "global"

    @property
    def url(self) -> str | None:
        if self.at == "vertex":
            return f"https://{vertex_host(self.place)}"
        if self.at == "bedrock" and self.region is not None:
            return f"https://bedrock-runtime.{self.region}.amazonaws.com"
        if self.at == "aws" and self.region is not None:
            return f"https://aws-external-anthropic.{self.region}.api.aws"
        return None

    @model_validator(mode="after")
    def _of_its_cloud(self) -> Self:
        for field, cloud in _OWN_FIELDS.items():
            if self.has(field) and self.at != cloud:
                raise ValueError(f"{field} needs `at: {cloud}`")
        if self.region is not None and self.at not in ("bedrock", "aws"):
            raise ValueError("region needs `at: bedrock` or `at: aws`")
        if self.at == "vertex" and self.project is None:
            raise ValueError("at: vertex needs the `project`, which is in the path of every request")
        return self


class TgiProtocol(PromptProtocol):
    """Text Generation Inference, ``/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["tgi"]
    """Selects this protocol. The pool's ``model`` is the LoRA adapter, if it is not the base model."""


Word = Literal[
    "prompt", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "stop", "bad_words",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "stream", "options",
]  # fmt: skip


class TritonGenerateProtocol(PromptProtocol):
    """Triton's generate extension, ``/v2/models/NAME/generate`` and ``/generate_stream``."""

    resumes = True

    name: Literal["triton-generate"]
    """Selects this protocol. The inputs of a model are read from its configuration."""
    inputs: dict[Word, TensorName] = Field({})
    """Maps fields of a request to the model's input names, where they differ. ``options`` is an input that receives
    everything except prompt and stream, as JSON."""
    output: TensorName = "text_output"
    """Output that holds the text."""
    max_tokens: int = Field(1024, ge=1)
    """Longest answer when the client sets no maximum. These servers would stop after 16 or 32 tokens."""
    streams: Literal["pieces", "whole"] | None = None
    """Whether each response of a stream holds the new text (``pieces``) or all text so far (``whole``). When absent: as
    the model's ``accumulate_tokens``, else ``pieces``."""

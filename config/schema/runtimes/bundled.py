"""The bundled servers: the LLM engine, the tensor runtime with its small models, and the files of pipelines."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from config.schema.pipelines.call import CallConfig
from config.schema.runtimes.base import RuntimeConfig
from config.schema.runtimes.ray import PlacedRuntime
from config.schema.runtimes.repositories import Repositories
from config.schema.section import Conflict, Section
from config.schema.text import Name
from config.schema.units import Duration, Size, SizeOrShare
from config.stores import folder_of

BundledModel = Literal[
    "magika", "silero-vad", "silero-vad-jit", "minilm", "guard-example", "search-example", "speech-parts", "ocr-detect",
    "ocr-classify", "ocr-recognise", "ocr-crop", "ocr-turn", "ocr-text", "basic-pitch", "basic-pitch-tf",
]  # fmt: skip
"""The names of `headrace models list`."""
EXTRAS: Mapping[BundledModel, tuple[str, ...]] = {
    "magika": ("onnx",),
    "silero-vad": ("onnx",),
    "silero-vad-jit": ("torch",),
    "minilm": ("torch",),
    "guard-example": ("embeddings", "torch"),
    "search-example": ("embeddings", "torch"),
    "speech-parts": ("onnx",),
    "ocr-detect": ("onnx",),
    "ocr-classify": ("onnx",),
    "ocr-recognise": ("onnx",),
    "ocr-crop": ("pipelines",),
    "ocr-turn": (),
    "ocr-text": ("onnx",),
    "basic-pitch": ("onnx",),
    "basic-pitch-tf": ("tensorflow",),
}
"""The extras of each model, those of the models that it needs included. All need the extra ``tensor``."""


class SamplingConfig(Section):
    """Sampling of requests that leave a field out. What is absent here is as the model's own files recommend."""

    temperature: float | None = Field(None, ge=0, le=2)
    """Temperature; 0 is greedy."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Share of the probability that the likeliest tokens have together; 1 is no restriction."""
    top_k: int | None = Field(None, ge=0, le=2**31 - 1)
    """Number of likeliest tokens; 0 is no restriction."""
    min_p: float | None = Field(None, ge=0, le=1)
    """Least probability of a token, as a share of the likeliest one's."""
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    """Penalty of tokens that the prompt or the answer has; 1 is none."""


WeightsStorage = Literal["auto", "unquantized", "int8", "int4", "stored"]


class SpeculationConfig(Section):
    """Tokens that a step computes ahead. Answers do not change."""

    kind: Literal["ngram", "draft_model"]
    """Source of the proposed tokens. ``ngram``: what followed the last tokens where they occurred before, in the
    prompt or the answer. ``draft_model``: a second, much smaller model of the same vocabulary."""
    tokens: int = Field(8, ge=1, le=32)
    """Greatest number of tokens that are proposed for an answer in one step."""
    model: str | None = Field(None, min_length=1)
    """With ``draft_model``: the small model, written as the ``model`` of the runtime. It has the same ``dtype``,
    ``device`` and ``executor``, and a part of ``kv_cache``."""
    weights: WeightsStorage | None = None
    """With ``draft_model``: storage of the small model's weight matrices; as the runtime's ``weights`` when absent."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.kind == "ngram":
            yield from self.inert("is for kind: draft_model, and this one needs no second model", "model", "weights")
        elif self.model is None:
            yield Conflict(("kind",), "is draft_model, which needs a model: the small one that proposes")


class LlmRuntime(PlacedRuntime):
    """One language model, served by Headrace's LLM engine."""

    serves = frozenset({"text"})

    kind: Literal["llm"]
    """Selects this runtime."""
    model: str = Field(min_length=1)
    """``bundled:NAME``, ``hf:ORG/NAME``, or the path of a GGUF file or a safetensors folder, relative to the working
    directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the computation. ``auto``: bfloat16 if the device supports it in hardware, else float32."""
    weights: WeightsStorage = "auto"
    """Storage of weight matrices. ``unquantized``: as ``dtype``. ``int8``, ``int4``: groups of 32 with one scale,
    for files of every format (with ``int4``, embedding and head use 8 bits). ``stored``: the blocks of a quantized
    GGUF file, unchanged. ``auto``: unquantized."""
    executor: Literal["auto", "native", "torch"] = "auto"
    """Implementation of a step. ``native``: C++, compiled once on the machine (bfloat16 on a CPU). ``auto``: native if
    there is a compiler and it supports the model, else torch; on a GPU Triton and CUDA graphs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the computation. ``auto``: a GPU if there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU threads, of each process with ``tensor_parallel``; PyTorch's choice when absent."""
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Processes of the machine that compute every step together, each with a part of the model, in torch: one for
    each CPU socket or GPU. The number must divide the model's heads."""
    max_model_len: int | None = Field(None, ge=16)
    """Longest prompt plus completion, in tokens; the model's own limit when absent."""
    max_num_seqs: int = Field(32, ge=1)
    """Requests computed together in one step."""
    max_num_batched_tokens: int = Field(512, ge=16)
    """Tokens computed in one step. A larger value speeds up prompts and slows down responses beside a long prompt."""
    kv_cache: SizeOrShare = 512 * 1024**2
    """Memory for the key-value cache, which bounds the tokens in flight. It is a size, or a share of the memory of the
    machine or container. On a GPU it is a share of the memory that weights and the largest step leave."""
    kv_cache_dtype: Literal["auto", "int8"] = "auto"
    """Number format of the cache. ``auto``: as ``dtype``. ``int8``: holds about twice as many tokens as bfloat16."""
    max_queue: int = Field(256, ge=1)
    """Requests that may wait; more are refused with 503."""
    prefix_cache: bool = True
    """Reuse computed prompt prefixes for requests of the same tenant, until the memory is needed."""
    share_prefixes: bool = False
    """Share computed prefixes between all tenants. A tenant can then infer from the time to the first token how another
    tenant's prompts begin."""
    adapters: dict[Name, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """LoRA adapters by name, each ``hf:ORG/NAME`` or the path of a folder of PEFT's files, relative to the working
    directory. A model of that name, or a route's ``rewrite: {model: NAME}``, selects it."""
    max_adapters: int = Field(8, ge=1)
    """Adapters in memory. Others are loaded for their next request, in the place of the least recently used one."""
    speculation: SpeculationConfig | None = None
    """Compute several tokens of an answer in one step, where that saves time."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """Sampling of requests that leave a field out."""
    pooling: Literal["auto", "mean", "last", "cls"] = "auto"
    """Hidden states that form a text's embedding. ``auto``: as the model's files specify, else the last one, and the
    mean of all for an encoder."""
    task: Literal[
        "auto", "rerank", "retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"
    ] = "auto"
    """What the model is for. ``auto``: as its files specify: a classifier's head ranks and classifies, any other model
    chats or embeds. ``rerank``: Qwen 3 Reranker, whose files do not differ from a chat model's. The others are adapters
    of Jina v3, one of which is added to its weights at load."""
    matryoshka: bool = False
    """Whether clients may truncate embeddings to any ``dimensions``, which is only meaningful for models trained for
    it. Not needed if the model's ``config.json`` declares it."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.executor == "native" and self.tensor_parallel > 1:
            message = "needs `executor: auto` or `torch`: the native step is one process"
            yield Conflict(("tensor_parallel",), message)
        if self.adapters and self.tensor_parallel > 1:
            yield Conflict(("tensor_parallel",), "is not possible beside `adapters`, which are not split")


class TensorRuntime(PlacedRuntime):
    """A repository of models of any framework, served by Headrace's tensor runtime."""

    serves = frozenset({"tensors"})

    kind: Literal["tensor"]
    """Selects this runtime."""
    repository: Repositories
    """Folder of models in Triton's layout, relative to the working directory, or the URL of models that the runtime
    pulls: ``https://HOST/PATH.tar.gz``, ``file:///PATH.zip``, ``s3://BUCKET/FOLDER``, ``gs:``, ``az:``,
    ``hf://ORG/NAME`` or ``oci://REGISTRY/NAME:TAG``. A list of several is served as one repository, in which each
    model's name is unique. See ``docs/model-stores.md``."""
    repository_cache: Size = 64 * 1024**3
    """Disk for the files of models that are pulled. A pull that would need more fails."""
    bundled: tuple[BundledModel, ...] = ()
    """Small models of ``headrace models list`` that are downloaded into the first ``repository`` at the start, if it
    lacks them."""
    mode: Literal["none", "explicit", "poll"] = "none"
    """Models that the runtime serves. ``none``: all, loaded once. ``explicit``: those in ``models``, and those that
    operators load. ``poll``: all, following changes of the folder."""
    models: tuple[Name, ...] = ()
    """With ``explicit``: names of the models to load at the start."""
    poll_interval: Duration = 5.0
    """With ``poll``: time between two scans of the folder, and between two looks for newer files to pull."""
    memory: Size | None = None
    """Memory of all loaded models. Idle models are unloaded for others, and loaded again by their next request.
    Unbounded when absent."""
    cache: Size = 64 * 1024**2
    """Memory for cached responses of all models with a response cache."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        for field, mode in (("models", "explicit"), ("poll_interval", "poll")):
            if self.mode != mode:
                yield from self.inert(f"has no effect: the mode is {self.mode}, not {mode}", field)
        if all(folder_of(each) is not None for each in self.repository):
            yield from self.inert("has no effect: no repository is pulled", "repository_cache")
        if self.bundled and folder_of(self.repository[0]) is None:
            message = "are downloaded into the first repository, which must be a folder"
            yield Conflict(("bundled",), message)


class CodeRuntime(RuntimeConfig):
    """The functions of all ``call: {file: ...}``, served by Headrace's tensor runtime."""

    serves = frozenset({"tensors"})

    kind: str = "code"
    """Kind of server."""
    start_timeout: float = 60.0
    """Longest time until all functions are loaded."""
    functions: tuple[CallConfig, ...]
    """Each with a ``file``."""

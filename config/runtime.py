"""The ``runtime`` part of a pool: a bundled server, which the gateway starts and watches."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.section import Section
from config.text import Name
from config.units import Duration, Size


class RuntimeConfig(Section):
    """A bundled server that the gateway starts and watches."""

    kind: Literal["llm", "tensor"]
    """Which bundled server: of one language model, or of a repository of models of any framework."""
    start_timeout: Duration = 300.0
    """How long loading may take."""

    # ── llm ──
    model: str | None = Field(None, min_length=1)
    """``bundled:NAME``, ``hf:ORG/NAME``, or a path to a GGUF file or a safetensors folder, relative to the
    working directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the weights. ``auto``: bfloat16 where the device has it in hardware, else float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute. ``auto``: a GPU if there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; PyTorch's own choice when absent."""
    max_model_len: int | None = Field(None, ge=16)
    """Longest prompt plus answer, in tokens; the model's own limit when absent."""
    max_num_seqs: int = Field(32, ge=1)
    """Requests computed together in one step."""
    max_num_batched_tokens: int = Field(512, ge=16)
    """Tokens computed in one step. More: faster prompts, and slower answers beside a long prompt."""
    kv_cache: Size = 512 * 1024**2
    """Memory for the key-value cache, which bounds how many tokens are in flight."""
    max_queue: int = Field(256, ge=1)
    """Requests that may wait; beyond it they are refused with 503."""
    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept, for those of the same tenant that begin alike, until the
    cache needs its place."""

    # ── tensor ──
    repository: str | None = Field(None, min_length=1)
    """Folder of models in Triton's layout, relative to the working directory."""
    mode: Literal["none", "explicit", "poll"] = "none"
    """Which are served. ``none``: all, once. ``explicit``: those of ``models``, and what
    operators load. ``poll``: as the folder changes."""
    models: tuple[Name, ...] = ()
    """With ``explicit``: by name."""
    poll_interval: Duration = 5.0
    """With ``poll``: between two looks into the folder."""
    memory: Size | None = None
    """What all loaded models may take; idle ones make way, and come back with their next request. No bound when
    absent."""
    cache: Size = 64 * 1024**2
    """Memory for kept answers, of all models that have a response cache."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "llm" and self.model is None:
            raise ValueError("an llm runtime serves a model: give `model`")
        if self.kind == "tensor" and self.repository is None:
            raise ValueError("a tensor runtime serves a folder of models: give `repository`")
        return self

"""``kind: llm``: the bundled server of one language model."""

from typing import Literal

from pydantic import Field

from config.runtimes.base import RuntimeConfig
from config.schema.units import SizeOrShare


class LlmRuntime(RuntimeConfig):
    """A language model, served by Headrace's own engine."""

    serves = frozenset({"text"})

    kind: Literal["llm"]
    """One language model."""
    model: str = Field(min_length=1)
    """``bundled:NAME``, ``hf:ORG/NAME``, or a path to a GGUF file or a safetensors folder, relative to the
    working directory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format to compute with. ``auto``: bfloat16 where the device has it in hardware, else float32."""
    weights: Literal["auto", "unquantized", "int8", "int4", "stored"] = "auto"
    """How matrices are kept. ``unquantized``: as ``dtype`` says. ``int8``, ``int4``: in groups of 32 that share a
    scale, whatever the files have (with ``int4``, embedding and head in 8 bits). ``stored``: in the blocks of a
    quantized GGUF file, as they are. ``auto``: unquantized."""
    executor: Literal["auto", "native", "torch"] = "auto"
    """What computes a step: ``native``, in C++, compiled once on the machine (for bfloat16 on a CPU), or ``torch``.
    ``auto``: native where there is a compiler and it runs the model, else torch; on a GPU Triton, CUDA graphs."""
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
    kv_cache: SizeOrShare = 512 * 1024**2
    """Memory for the key-value cache, which bounds how many tokens are in flight: ``1GiB``, or ``30%`` of the memory
    of the machine or its container; of a GPU, of what weights and the largest step leave."""
    kv_cache_dtype: Literal["auto", "int8"] = "auto"
    """What it holds. ``auto``: numbers as ``dtype`` says. ``int8``: codes, of about twice as many tokens as with
    bfloat16."""
    max_queue: int = Field(256, ge=1)
    """Requests that may wait; beyond it they are refused with 503."""
    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept, for those of the same tenant that begin alike, until the
    cache needs its place."""
    share_prefixes: bool = False
    """Whether prompts of all tenants share what was computed of them. A tenant can then find out by the time to an
    answer's first token how another tenant's prompts begin."""
    pooling: Literal["auto", "mean", "last", "cls"] = "auto"
    """Which of a text's hidden states its embedding is made of. ``auto``: as the model's own files say; where they do
    not, the last one, and of an encoder the mean of all."""
    matryoshka: bool = False
    """Whether embeddings may be cut to any ``dimensions``: only what the model was trained for makes sense. A model
    whose ``config.json`` says so needs no word here."""

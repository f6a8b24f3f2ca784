"""The options of an engine, and its statistics."""

from dataclasses import dataclass
from pathlib import Path

from runtimes.histogram import Histogram
from runtimes.llm.engine.executor import ExecutorName
from runtimes.llm.engine.speculation import Speculation
from runtimes.llm.engine.step_costs import MOST_PROPOSED
from runtimes.llm.memory import KVCacheName
from runtimes.llm.model.matrix import WeightsName
from runtimes.llm.weights.loader import DeviceName, DtypeName


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The model to load and the resources that it may use.

    `threads` None uses torch's default. `max_model_len` None uses the greatest length that the model and the KV cache
    both support. `kv_cache_bytes`, or instead of it a `kv_cache_share` of all memory, is allocated at the start and
    never grows.
    """

    model: Path
    dtype: DtypeName = "auto"
    device: DeviceName = "auto"
    weights: WeightsName = "auto"
    executor: ExecutorName = "auto"
    threads: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    kv_cache_bytes: int = 1 << 30
    kv_cache_share: float | None = None
    kv_cache_dtype: KVCacheName = "auto"
    block_size: int = 16
    max_queue: int = 256
    prefix_cache: bool = True
    speculation: Speculation | None = None
    tensor_parallel: int = 1
    """Processes that compute every step together."""

    @property
    def step_rows(self) -> int:
        """The most rows of logits of a step."""
        return self.max_num_seqs + (0 if self.speculation is None else MOST_PROPOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Statistics at one moment; from `preemptions` on, the values are monotonic counters.

    `prompt_tokens` are those of accepted requests.
    """

    running: int
    waiting: int
    kv_blocks_total: int
    kv_blocks_free: int
    block_size: int
    preemptions: int
    prompt_tokens: int
    cached_prompt_tokens: int
    generated_tokens: int
    steps: int
    drafts: int
    """Times that tokens were proposed for a sequence."""
    proposed_tokens: int
    accepted_tokens: int
    waits: Histogram
    """Seconds from a request's arrival to its first step."""
    intervals: Histogram
    """Seconds between two tokens of an answer, when they are delivered."""

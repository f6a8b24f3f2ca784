"""The engine, synchronous: each step schedules a batch, runs it and appends its tokens."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import torch

from runtimes.histogram import LATENCY_BOUNDS, Histogram
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.draft_model import Drafting, DraftModel, load_draft
from runtimes.llm.engine.drafts import PlannedDraft
from runtimes.llm.engine.engine_config import EngineConfig, EngineStats
from runtimes.llm.engine.executor import make_executor, memory_of_steps, page_bytes
from runtimes.llm.engine.model_runner import ModelRunner, Pooler
from runtimes.llm.engine.ranks.channel import RankEnded
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.speculation import Speculator
from runtimes.llm.engine.state_slots import StateSlots
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.memory import (
    KV_ADVICE,
    OutOfMemory,
    allocating,
    cache_size,
    kv_dtype,
    ran_out,
    state_bytes,
)
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.lora import LowRankAdapter
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.sequence import (
    DEFAULT_STANDING,
    Constraint,
    PhaseTimes,
    Pooling,
    Sampled,
    SamplingParams,
    Sequence,
    Standing,
    StepAdapter,
    StepBatch,
    TokenOutput,
)
from runtimes.llm.weights.loader import load_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runtimes.llm.engine.ranks.others import Ranks

__all__ = ["Engine", "EngineConfig", "EngineStats", "StepRunner"]

log = logging.getLogger(__name__)


class StepRunner(Protocol):
    """The interface of a model for the engine: plain data in, plain data out."""

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        """Run `batch`.

        Returns, by sequence id, the result of each chunk that `samples` or has targets. The batch may be empty.
        """


class Engine:
    """Continuous batching over one model. `step` belongs to one thread; other methods may be called from any thread.

    `clock` is the clock of deadlines.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        pooler: Pooler | None = None,
        prepared: Callable[[LowRankAdapter], StepAdapter] | None = None,
        draft: DraftModel | None = None,
        ranks: "Ranks | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.intervals = Histogram(LATENCY_BOUNDS)
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(id for id in eos_token_ids if id < vocab_size)
        self._scheduler = scheduler
        self._runner = runner
        self._pooler = pooler
        self._draft = draft
        self.prepared = prepared
        """Makes an adapter one of this engine's; None if it takes none."""
        self._ids = itertools.count()
        self._prompt_tokens = self._generated_tokens = self._steps = 0
        self._closed = False
        self._failure: RankEnded | None = None
        self._ranks = ranks
        # Guards the scheduler, never held while the model runs.
        self._changed = threading.Condition()
        if ranks is not None:
            ranks.watch(self._fail_all)

    @classmethod
    def load(cls, config: EngineConfig) -> "Engine":
        """Load the model, which takes seconds to minutes. Raises ValueError for an invalid model or invalid bounds."""
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        model = load_model(
            config.model,
            dtype=config.dtype,
            device=config.device,
            weights=config.weights,
            native=config.executor != "torch",
        )
        return cls.serving(model, config, load_draft(config))

    @classmethod
    def serving(
        cls, model: Llama, config: EngineConfig, draft: Llama | None = None, ranks: "Ranks | None" = None
    ) -> "Engine":
        """An engine over a loaded model, and the `draft` if one proposes. With `ranks`, which are connected, the model
        is the part of rank 0.

        Raises ValueError for invalid bounds or an invalid draft, NotEnoughMemory if the KV cache does not fit.
        """
        if config.block_size < 1:
            raise ValueError(f"block_size must be 1 or more, not {config.block_size}")
        numbers = kv_dtype(config.kv_cache_dtype, model.dtype)
        models = [model] if draft is None else [model, draft]
        steps = [
            memory_of_steps(config.executor, one, config.max_num_batched_tokens, config.step_rows, config.block_size)
            for one in models
        ]
        pages = [page_bytes(one, config.kv_cache_dtype, config.block_size) for one in models]
        if ranks is not None:
            pages[0] *= ranks.on_one_device(model.device)
        size = cache_size(
            config.kv_cache_bytes, config.kv_cache_share, sum(pages), state_bytes(model.config, model.dtype),
            config.max_num_seqs * (2 if config.prefix_cache else 1), model.device, sum(steps),
        )  # fmt: skip
        if ranks is not None:
            size = replace(size, blocks=ranks.room(size.blocks))
        if size.states and config.speculation is not None:
            raise ValueError("speculation is not supported for a model with recurrent layers: leave it out")
        states = StateSlots(size.states) if size.states else None
        blocks = BlockManager(size.blocks, config.block_size, caching=config.prefix_cache, states=states)
        context = model.config.context_length
        longest = min(context, blocks.capacity)
        bounds = SchedulerConfig(
            max_model_len=longest if config.max_model_len is None else config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_queue=config.max_queue,
        )
        if bounds.max_model_len > context:
            raise ValueError(f"max_model_len is {bounds.max_model_len}; the model's context is {context} tokens")
        with allocating("the KV cache", KV_ADVICE):
            executor = make_executor(
                config.executor, model, size.blocks, config.block_size, context_length=bounds.max_model_len,
                kv_dtype=numbers, max_num_seqs=bounds.max_num_seqs if ranks is None else 0, num_states=size.states,
            )  # fmt: skip
            drafting = (
                None if draft is None else Drafting.of(draft, config, bounds, size.blocks, model.config.vocab_size)
            )
        if ranks is not None:
            executor = ranks.started(executor, size.blocks, config.block_size, bounds.max_model_len)
        speculator = None
        if config.speculation is not None:
            planner = None if drafting is None else drafting.planner
            speculator = Speculator(config.speculation, bounds.max_model_len, planner)
        return cls(
            Scheduler(bounds, blocks, speculator),
            ModelRunner(executor),
            vocab_size=model.config.vocab_size,
            eos_token_ids=model.config.eos_token_ids,
            pooler=Pooler(executor),
            prepared=executor.prepared,
            draft=None if drafting is None else drafting.model,
            ranks=ranks,
        )

    @property
    def max_model_len(self) -> int:
        """The maximum of tokens of a prompt and its answer together."""
        return self._scheduler.config.max_model_len

    @property
    def speculates(self) -> bool:
        """Whether tokens are proposed ahead."""
        return self._scheduler.speculator is not None

    @property
    def max_queue(self) -> int:
        """The most sequences that may wait."""
        return self._scheduler.config.max_queue

    def add(
        self,
        prompt: Iterable[int],
        params: SamplingParams,
        salt: bytes = b"",
        pooling: Pooling | None = None,
        *,
        continued: int = 0,
        standing: Standing = DEFAULT_STANDING,
        constraint: Constraint | None = None,
        times: PhaseTimes | None = None,
        second_part: int | None = None,
        adapter: StepAdapter | None = None,
        pictures: PictureRows | None = None,
        prediction: Collection[int] = (),
    ) -> int:
        """Queue a prompt; returns the id of its sequence. Prompts with the same salt and adapter share cached pages.
        The last `continued` tokens already belong to the answer: they count as generated, and the `constraint` includes
        them. With `pooling` the sequence has one output and no token. The second text of a pair begins at
        `second_part`. The tokens of a `prediction` are proposed, if the engine `speculates`.

        Raises QueueFull, PromptTooLong, TooLate, or ValueError for an empty prompt or a token outside the vocabulary.
        """
        if pooling is not None and self._pooler is None:
            raise ValueError("this engine does not embed texts")
        token_ids = list(prompt)
        if not token_ids:
            raise ValueError("the prompt is empty: it must have one token at least")
        if not 0 <= min(token_ids) <= max(token_ids) < self.vocab_size:
            raise ValueError(f"the prompt has token ids outside 0 … {self.vocab_size - 1}")
        for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
            if unknown := [str(token_id) for token_id in ids if not 0 <= token_id < self.vocab_size]:
                raise ValueError(f"{name} has tokens outside 0 … {self.vocab_size - 1}: {', '.join(unknown[:5])}")
        eos = frozenset() if params.ignore_eos else self.eos_token_ids
        sequence = Sequence(
            next(self._ids),
            token_ids,
            params,
            params.stop_token_ids | eos,
            salt=salt if adapter is None else blake2b(adapter.digest, digest_size=32, key=salt).digest(),
            adapter=adapter,
            pictures=pictures,
            pooling=pooling,
            num_continued=continued,
            standing=standing,
            constraint=constraint,
            times=times,
            second_part=second_part,
            prediction=[token for token in prediction if 0 <= token < self.vocab_size] if self.speculates else (),
        )
        self._scheduler.blocks.prepare(sequence)  # while the model runs, not between two steps
        with self._changed:
            self._scheduler.add(sequence, self.clock())
            self._prompt_tokens += len(token_ids)
            self._changed.notify()
        return sequence.id

    def abort(self, sequence_id: int) -> None:
        """Remove a sequence and free its pages; no effect if it has ended."""
        with self._changed:
            self._scheduler.abort(sequence_id)

    def step(self) -> dict[int, TokenOutput]:
        """Run one batch; returns its tokens by sequence id: the newest of each sequence, which names those before it.

        If memory runs out, the sequences of the batch end with OutOfMemory; waiting sequences are not affected.
        """
        batch = self._schedule()
        try:
            return self._run(batch)
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            log.error("memory ran out in a step of %d tokens: %s", batch.num_tokens, error)
            return self._fail(batch)

    def _run(self, batch: StepBatch) -> dict[int, TokenOutput]:
        began = self.clock()
        if self._draft is not None and (drafts := self._drafts()):
            batch = self._draft.run(batch, drafts)
        outputs = self._compute(batch)
        with self._changed:
            self._scheduler.measured(batch, self.clock() - began)
        return outputs

    def _compute(self, batch: StepBatch) -> dict[int, TokenOutput]:
        sampled = self._runner.run(batch)
        if not batch.pooled:
            return self._update(batch, sampled)
        assert self._pooler is not None  # else none was added
        sums = self._pooler.run(batch.pooled)
        return self._update(batch, sampled) | self._update_pooled(batch, sums)

    def wait_for_work(self) -> bool:
        """Wait until a sequence can run (True) or the engine is closed (False). Raises RankEnded."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._failure is not None or self._scheduler.has_work)
            if self._failure is not None and not self._closed:
                raise self._failure
            return not self._closed

    def close(self) -> None:
        """Make `wait_for_work` return False from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def release(self) -> None:
        """End the other ranks, if there are any, after the last step."""
        if self._ranks is not None:
            self._ranks.close()

    def _fail_all(self, failure: RankEnded) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def stats(self) -> EngineStats:
        with self._changed:
            speculator = self._scheduler.speculator
            return EngineStats(
                running=self._scheduler.num_running,
                waiting=self._scheduler.num_waiting,
                kv_blocks_total=self._scheduler.blocks.num_blocks,
                kv_blocks_free=self._scheduler.blocks.num_free,
                block_size=self._scheduler.blocks.block_size,
                preemptions=self._scheduler.num_preemptions,
                prompt_tokens=self._prompt_tokens,
                cached_prompt_tokens=self._scheduler.num_cached_tokens,
                generated_tokens=self._generated_tokens,
                steps=self._steps,
                drafts=0 if speculator is None else speculator.num_drafts,
                proposed_tokens=0 if speculator is None else speculator.num_proposed,
                accepted_tokens=0 if speculator is None else speculator.num_accepted,
                waits=self._scheduler.waits,
                intervals=self.intervals,
            )

    def check_idle(self) -> None:
        """Raise AssertionError that names the leak, unless no sequence lives and every page is free."""
        with self._changed:
            self._scheduler.check_integrity()
            if self._scheduler.has_work:
                raise AssertionError(
                    f"not idle: {self._scheduler.num_running} sequences run, {self._scheduler.num_waiting} wait"
                )

    def _schedule(self) -> StepBatch:
        with self._changed:
            return self._scheduler.schedule(self.clock())

    def _drafts(self) -> list[PlannedDraft]:
        with self._changed:
            planner = None if self._scheduler.speculator is None else self._scheduler.speculator.drafts
            return [] if planner is None else planner.take()

    def _fail(self, batch: StepBatch) -> dict[int, TokenOutput]:
        """End the sequences of a step that failed. Their pages are not indexed, since their contents are undefined."""
        ended = [chunk.sequence_id for chunk in (*batch.chunks, *batch.pooled)]
        with self._changed:
            for sequence_id in ended:
                self._scheduler.abort(sequence_id)
        return {sequence_id: TokenOutput(-1, error=OutOfMemory()) for sequence_id in ended}

    def _update_pooled(self, batch: StepBatch, sums: "Mapping[int, NDArray[np.float32]]") -> dict[int, TokenOutput]:
        with self._changed:
            return self._scheduler.update_pooled(batch, sums)

    def _update(self, batch: StepBatch, sampled: dict[int, Sampled]) -> dict[int, TokenOutput]:
        with self._changed:
            outputs = self._scheduler.update(batch, sampled)
            self._generated_tokens += sum([len(output.before) + (output.error is None) for output in outputs.values()])
            self._steps += 1
            for sequence_id, error in self._scheduler.take_failures().items():
                outputs[sequence_id] = TokenOutput(-1, error=error)
            return outputs

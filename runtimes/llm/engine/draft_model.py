"""The second, smaller model of an engine: it proposes tokens, which the large one's next step checks.

Each proposal is drawn as the large model draws its token: from the draft's own distribution, with the parameters of
the request and the random number of the place. Two draws from similar distributions with one random number are mostly
the same token (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative decoding",
https://arxiv.org/abs/2408.07978). The answer has only tokens that the large model has drawn itself, so the draft
changes neither their distribution nor the answer of a seed.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.engine.drafts import DraftPlanner, PlannedDraft
from runtimes.llm.engine.engine_config import EngineConfig
from runtimes.llm.engine.executor import make_executor
from runtimes.llm.engine.model_runner import Logits
from runtimes.llm.engine.sampler import sample
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.memory import kv_dtype, ran_out
from runtimes.llm.model.llama import Llama
from runtimes.llm.sequence import Chunk, StepBatch
from runtimes.llm.weights.loader import load_model
from runtimes.llm.weights.store import resolve

log = logging.getLogger(__name__)


class DraftModel:
    """Runs the draft before a step. `vocab_size` is the large model's, `own_size` the draft's: one may be padded."""

    def __init__(self, executor: Logits, *, vocab_size: int, own_size: int) -> None:
        self.executor = executor
        self._vocab_size = vocab_size
        self._own_size = own_size

    def run(self, batch: StepBatch, drafts: Sequence[PlannedDraft]) -> StepBatch:
        """The batch with the proposals of `drafts` behind the newest tokens of their sequences."""
        steps = {draft.sequence.id: [draft.newest] for draft in drafts}
        reading = [_reading(draft) for draft in drafts]
        active = [draft for draft in drafts if draft.count]
        ends, end = [], -1
        for draft, chunk in zip(drafts, reading, strict=True):
            end += len(chunk.token_ids)
            if draft.count:
                ends.append(end)
        tokens = self._tokens(reading, ends, [draft.newest for draft in active])
        while active:
            going = []
            for draft, token_id in zip(active, tokens, strict=True):
                own = steps[draft.sequence.id]
                if token_id is None:
                    continue
                proposed = [*(step.token_ids[0] for step in own[1:]), token_id]
                own.append(draft.sequence.after(draft.newest, proposed))
                if len(proposed) < draft.count and token_id not in draft.sequence.stop_token_ids:
                    going.append(draft)
            active = going
            last = [steps[draft.sequence.id][-1] for draft in active]
            if active:
                tokens = self._tokens(last, range(len(last)), last)
        for draft in drafts:
            draft.state.computed = draft.end + max(0, len(steps[draft.sequence.id]) - 2)
        made = [(draft, steps[draft.sequence.id]) for draft in drafts]
        return batch.proposing({one.sequence.id: one.newest.with_steps(own) for one, own in made if len(own) > 1})

    def _tokens(self, chunks: Sequence[Chunk], rows: Sequence[int], places: Sequence[Chunk]) -> list[int | None]:
        """Compute the chunks; the tokens after `rows`, drawn as at `places`. None where nothing can be drawn."""
        inside = [
            replace(chunk, token_ids=self._inside(chunk.token_ids), adapter=None, pictures=None) for chunk in chunks
        ]
        logits = self.executor.logits(inside, rows)
        if not rows:
            return []
        try:
            drawn = sample(self._widened(logits), [_unscored(place) for place in places])
        except Exception as error:  # the large model's own sampling reports it, for the row at fault
            if ran_out(error):
                raise
            log.debug("no draft is possible: %s", error)
            return [None] * len(places)
        return [None if one.error is not None else one.token_id for one in drawn]

    def _inside(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Tokens for which the draft has a row: those of padding are the last one."""
        if self._own_size >= self._vocab_size:
            return token_ids
        return tuple([min(token_id, self._own_size - 1) for token_id in token_ids])

    def _widened(self, logits: Tensor) -> Tensor:
        """The logits of the large model's vocabulary."""
        if self._own_size == self._vocab_size:
            return logits
        return functional.pad(logits, (0, self._vocab_size - self._own_size), value=-torch.inf)


def load_draft(config: EngineConfig) -> Llama | None:
    """The second model; None without one. It has the number format, the device and the executor of the first. Raises
    ValueError for an invalid model, which the message names, and NotEnoughMemory."""
    speculation = config.speculation
    if speculation is None or speculation.model is None:
        return None
    try:
        model = load_model(
            resolve(speculation.model, progress=True),
            dtype=config.dtype,
            device=config.device,
            weights=speculation.weights or config.weights,
            native=config.executor != "torch",
        )
    except (ValueError, OSError) as error:
        raise ValueError(f"speculation: the draft {speculation.model} cannot be loaded: {error}") from error
    if model.config.recurrent is not None:
        raise ValueError(
            f"speculation: the draft {speculation.model} has recurrent layers, whose state cannot go back behind"
            " refused tokens: take another model"
        )
    return model


@dataclass(frozen=True, slots=True)
class Drafting:
    """The draft of an engine, and what plans its work."""

    planner: DraftPlanner
    model: DraftModel

    @classmethod
    def of(
        cls, draft: Llama, config: EngineConfig, bounds: SchedulerConfig, num_blocks: int, vocab_size: int
    ) -> "Drafting":
        """With a cache of as many pages as the large model's, whose vocabulary is `vocab_size`."""
        assert config.speculation is not None
        longest = min(bounds.max_model_len, draft.config.context_length)
        executor = make_executor(
            config.executor,
            draft,
            num_blocks,
            config.block_size,
            context_length=longest,
            kv_dtype=kv_dtype(config.kv_cache_dtype, draft.dtype),
            max_num_seqs=bounds.max_num_seqs,
        )
        planner = DraftPlanner(
            config.speculation.tokens,
            max_model_len=longest,
            max_num_batched_tokens=bounds.max_num_batched_tokens,
            num_blocks=num_blocks,
        )
        return cls(planner, DraftModel(executor, vocab_size=vocab_size, own_size=draft.config.vocab_size))


def _reading(draft: PlannedDraft) -> Chunk:
    tokens = draft.sequence.token_ids[draft.start : draft.end]
    return replace(draft.newest, start=draft.start, token_ids=tuple(tokens), samples=draft.count > 0, targets=())


def _unscored(place: Chunk) -> Chunk:
    """Without log-probabilities, which proposals do not report."""
    params = place.params
    return place if params.logprobs is None else replace(place, params=replace(params, logprobs=None))

"""Texts to embed in the engine: what their vectors are, and that nothing that the scheduler does changes them."""

from collections.abc import Sequence as Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.model_runner import Pooler
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.model.llama import Llama
from runtimes.llm.sequence import Chunk, Pooling, Sampled, SamplingParams, Sequence, StepBatch, TokenOutput
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import save_safetensors, tiny_llama
from tests.support.llm_engines import ONE, run

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
TEXTS = [[3, 1, 4, 1, 5], list(range(1, 40)), [9], list(range(90, 2, -1)), list(range(1, 40))]


@pytest.fixture(scope="module")
def theirs() -> Any:
    return tiny_llama()


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Llama:
    return load_model(save_safetensors(theirs, tmp_path_factory.mktemp("tiny")), dtype="float32")


def engine(model: Llama, **changes: Any) -> Engine:
    options = {"max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 64, "kv_cache_bytes": 1 << 20}
    return Engine.serving(model, EngineConfig(**{"model": Path(), "block_size": 4, **options, **changes}))


def vectors(engine: Engine, texts: list[list[int]], pooling: Pooling) -> list[NDArray[np.float32]]:
    ids = [engine.add(text, ONE, pooling=pooling) for text in texts]
    outputs = run(engine)
    pooled = []
    for id_ in ids:
        [output] = outputs[id_]
        assert output.finish_reason == "stop"
        assert output.pooled is not None
        pooled.append(output.pooled)
    return pooled


@torch.inference_mode()  # type: ignore[untyped-decorator]
def expected(model: Any, text: list[int], pooling: Pooling) -> NDArray[np.float32]:
    states = model.model(torch.tensor([text])).last_hidden_state[0]
    row = {"mean": states.mean(dim=0), "last": states[-1], "cls": states[0]}[pooling]
    array: NDArray[np.float32] = row.numpy()
    return array


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
@pytest.mark.parametrize("budget", [8, 64, 512])
def test_vectors_are_those_of_transformers_however_texts_are_cut(
    ours: Llama, theirs: Any, pooling: Pooling, budget: int
) -> None:
    made = vectors(engine(ours, max_num_batched_tokens=budget), TEXTS, pooling)
    for text, vector in zip(TEXTS, made, strict=True):
        np.testing.assert_allclose(vector, expected(theirs, text, pooling), atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_the_cache_of_a_text_changes_no_vector(ours: Llama, theirs: Any, pooling: Pooling) -> None:
    """Answers, and texts before it, have left pages that it could begin with."""
    same = engine(ours)
    text = TEXTS[1]
    same.add(text, GREEDY)
    run(same)
    for _ in range(2):
        [vector] = vectors(same, [text], pooling)
        np.testing.assert_allclose(vector, expected(theirs, text, pooling), atol=1e-4)
    cached = same.stats().cached_prompt_tokens
    assert cached == (2 * 36 if pooling == "last" else 0)


def test_answers_share_steps_with_texts_and_are_the_same(ours: Llama, theirs: Any) -> None:
    alone = engine(ours)
    first = alone.add(TEXTS[0], GREEDY)
    tokens = [output.token_id for output in run(alone)[first]]
    both = engine(ours, prefix_cache=False)
    answer = both.add(TEXTS[0], GREEDY)
    texts = [both.add(text, ONE, pooling="mean") for text in TEXTS]
    outputs = run(both)
    assert [output.token_id for output in outputs[answer]] == tokens
    for text, id_ in zip(TEXTS, texts, strict=True):
        pooled = outputs[id_][0].pooled
        assert pooled is not None
        np.testing.assert_allclose(pooled, expected(theirs, text, "mean"), atol=1e-4)
    assert both.stats().generated_tokens == len(tokens)


def test_a_text_that_gives_its_pages_up_begins_anew(ours: Llama, theirs: Any) -> None:
    """An answer grows into the pages that a text half computed has."""
    page = 2 * 2 * 2 * 8 * 4 * 4  # keys and values of two layers of two heads of eight, four tokens of four bytes
    small = engine(ours, kv_cache_bytes=20 * page, max_num_batched_tokens=8, max_model_len=80, prefix_cache=False)
    answer = small.add(list(range(1, 12)), SamplingParams(max_tokens=40, temperature=0, ignore_eos=True))
    for _ in range(2):
        small.step()
    text = small.add(TEXTS[3][:64], ONE, pooling="mean")
    outputs = run(small)
    assert len(outputs[answer]) >= 38
    assert small.stats().preemptions > 0
    pooled = outputs[text][0].pooled
    assert pooled is not None
    np.testing.assert_allclose(pooled, expected(theirs, TEXTS[3][:64], "mean"), atol=1e-4)


def test_a_text_may_be_as_long_as_the_context(ours: Llama) -> None:
    full = [1] * 128
    assert len(vectors(engine(ours), [full], "mean")) == 1
    with pytest.raises(ValueError, match="129 tokens"):
        engine(ours).add([*full, 1], ONE, pooling="mean")
    with pytest.raises(ValueError, match="128 tokens"):
        engine(ours).add(full, ONE)


def test_an_engine_without_hidden_states_refuses_embeddings(ours: Llama) -> None:
    class TokensOnly:
        def run(self, batch: StepBatch) -> dict[int, Sampled]:
            return {}

    scheduler = engine(ours)._scheduler
    plain = Engine(scheduler, TokensOnly(), vocab_size=96, eos_token_ids=frozenset())
    with pytest.raises(ValueError, match="does not embed texts"):
        plain.add([1], ONE, pooling="mean")


def test_a_batch_separates_both_kinds() -> None:
    kinds: tuple[Pooling | None, ...] = (None, "mean", None, "cls")
    chunks = [Chunk(i, 0, (1, 2), (0,), True, ONE, 0, pooling) for i, pooling in enumerate(kinds)]
    batch = StepBatch.of(chunks[:1], chunks[1:])
    assert [chunk.sequence_id for chunk in batch.chunks] == [0, 2]
    assert [chunk.sequence_id for chunk in batch.pooled] == [1, 3]
    assert batch.num_tokens == 8
    assert batch.num_decodes == 1
    assert StepBatch.of([], chunks[:1]) == StepBatch(tuple(chunks[:1]))


# ── whatever the scheduler does ───────────────────────────────────────────────────────────────────────


@given(
    texts=st.lists(st.tuples(st.integers(1, 20), st.sampled_from([None, "mean", "last", "cls"])), max_size=8),
    blocks=st.integers(8, 14),
    seqs=st.integers(1, 4),
    spare=st.integers(0, 8),
    caching=st.booleans(),
    abort=st.integers(0, 20),
)
@settings(max_examples=60, deadline=None)
def test_every_text_gets_its_vector(
    texts: list[tuple[int, Pooling | None]], blocks: int, seqs: int, spare: int, caching: bool, abort: int
) -> None:
    """Here a token's hidden state is its position, so that a missing or doubled token is visible."""
    config = SchedulerConfig(
        max_model_len=32, max_num_seqs=seqs, max_num_batched_tokens=seqs + spare, max_queue=len(texts) + 1
    )
    scheduler = Scheduler(config, BlockManager(blocks, 4, caching=caching))
    for id_, (length, pooling) in enumerate(texts):
        scheduler.add(Sequence(id_, list(range(length)), SamplingParams(max_tokens=12), pooling=pooling))
    pooled: dict[int, TokenOutput] = {}
    for step in range(2000):
        if not scheduler.has_work:
            break
        batch = scheduler.schedule()
        assert batch.num_tokens <= config.max_num_batched_tokens
        if step == abort:
            scheduler.abort(0)
        scheduler.update(batch, {chunk.sequence_id: Sampled(7) for chunk in batch.chunks})
        pooled |= scheduler.update_pooled(batch, Pooler(_Positions()).run(batch.pooled))
        scheduler.check_integrity()
    assert not scheduler.has_work
    for id_, (length, pooling) in enumerate(texts):
        if id_ in pooled:
            expected = {"mean": (length - 1) / 2, "last": length - 1, "cls": 0, None: None}[pooling]
            vector = pooled[id_].pooled
            assert vector is not None
            assert vector[0] == pytest.approx(expected, abs=1e-5)
        else:
            assert pooling is None or id_ == 0


class _Positions:
    """An executor of numbers that are easy to check."""

    def hidden(self, chunks: Collection[Chunk]) -> torch.Tensor:
        positions = [position for chunk in chunks for position in range(chunk.start, chunk.end)]
        return torch.tensor(positions, dtype=torch.float32)[:, None]

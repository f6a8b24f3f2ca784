"""Paged attention equals attention over plain, contiguous keys and values."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm import memory
from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.memory import MemoryStatus, NotEnoughMemory, kv_blocks
from runtimes.llm.model.attention import (
    KVCache,
    Layout,
    ScoreOptions,
    SmallPages,
    bytes_per_position,
    fetch,
    new_pages,
    store,
)
from tests.runtimes.llm.reference import PROMPTS, TINY_KV_BYTES, assert_greedy, save_safetensors, tiny_llama
from tests.support.llm_engines import answers
from tests.support.paged_attention import CPU, HEAD_DIM, HEADS, KV_HEADS, make_chunk

SCALE = 0.3


def dense_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None, soft_cap: float | None
) -> torch.Tensor:
    """Causal attention of the last positions, head by head, in float64. [n, H, D], [end, K, D] → [n, H, D]."""
    count, end = len(query), len(key)
    output = torch.empty(query.shape, dtype=torch.float64)
    for row in range(count):
        last = end - count + row + 1
        seen = slice(0 if window is None else max(0, last - window), last)
        for head in range(HEADS):
            kv_head = head // (HEADS // KV_HEADS)
            scores = key[seen, kv_head].double() @ query[row, head].double() * SCALE
            if soft_cap is not None:
                scores = soft_cap * (scores / soft_cap).tanh()
            output[row, head] = scores.softmax(0) @ value[seen, kv_head].double()
    return output


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(
    spans=spans,
    block_size=st.sampled_from([1, 3, 4, 16]),
    window=st.none() | st.integers(1, 30),
    soft_cap=st.sampled_from([None, 1.5]),
    seed=st.integers(0, 2**31),
)
def test_paged_equals_dense(
    spans: list[tuple[int, int]], block_size: int, window: int | None, soft_cap: float | None, seed: int
) -> None:
    """Any mix of single tokens and chunks, through any window, on pages in any order, beside pages of other numbers."""
    generator = torch.Generator().manual_seed(seed)
    spans = sorted(spans, key=lambda span: span[1] > 1)
    needed = [-(-(start + count) // block_size) for start, count in spans]
    pages = torch.randperm(sum(needed) + 3, generator=generator).tolist()
    cache = KVCache(
        num_layers=1, num_blocks=len(pages), block_size=block_size, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM,
        dtype=torch.float32, device=CPU,
    )  # fmt: skip
    assert isinstance(cache.keys, torch.Tensor)
    assert isinstance(cache.values, torch.Tensor)
    cache.keys.copy_(torch.randn(cache.keys.shape, generator=generator) * 100)
    cache.values.copy_(torch.randn(cache.values.shape, generator=generator) * 100)
    chunks, queries, keys, values = [], [], [], []
    for identity, (start, count) in enumerate(spans):
        table, pages = pages[: needed[identity]], pages[needed[identity] :]
        chunks.append(make_chunk(identity, start, count, table))
        queries.append(torch.randn(count, HEADS, HEAD_DIM, generator=generator))
        keys.append(torch.randn(start + count, KV_HEADS, HEAD_DIM, generator=generator))
        values.append(torch.randn(start + count, KV_HEADS, HEAD_DIM, generator=generator))
        for position in range(start):
            cache.keys[0, table[position // block_size], position % block_size] = keys[-1][position]
            cache.values[0, table[position // block_size], position % block_size] = values[-1][position]
    output = Layout.of(chunks, block_size, CPU, {None, window}).attend(
        torch.cat(queries),
        torch.cat([key[start:] for key, (start, _) in zip(keys, spans, strict=True)]),
        torch.cat([value[start:] for value, (start, _) in zip(values, spans, strict=True)]),
        cache.keys[0],
        cache.values[0],
        ScoreOptions(window, SCALE, soft_cap),
    )
    expected = torch.cat([dense_attention(*one, window, soft_cap) for one in zip(queries, keys, values, strict=True)])
    torch.testing.assert_close(output.double(), expected, atol=2e-5, rtol=1e-4)


def test_not_a_number_stays_with_its_own_sequence() -> None:
    """A sequence that overflowed must not spoil a shorter neighbour in the same batch."""
    cache = KVCache(
        num_layers=1, num_blocks=4, block_size=4, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM,
        dtype=torch.float32, device=CPU,
    )  # fmt: skip
    assert isinstance(cache.values, torch.Tensor)
    cache.values[0, :3] = torch.nan
    chunks = [make_chunk(0, 10, 1, [0, 1, 2]), make_chunk(1, 0, 1, [3])]
    layout = Layout.of(chunks, 4, CPU)
    cache.clear(layout.begun)  # as a step does: new memory holds whatever was there
    shape = (2, KV_HEADS, HEAD_DIM)
    output = layout.attend(
        torch.ones(2, HEADS, HEAD_DIM),
        torch.ones(shape),
        torch.ones(shape),
        cache.keys[0],
        cache.values[0],
        ScoreOptions(),
    )
    assert output[0].isnan().all()
    assert torch.equal(output[1], torch.ones(HEADS, HEAD_DIM))


BLOCK = 4


def make_cache(dtype: torch.dtype, pages: int) -> KVCache:
    cache = KVCache(
        num_layers=1, num_blocks=pages, block_size=BLOCK, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=dtype,
        device=CPU,
    )  # fmt: skip
    cache.clear(torch.arange(pages))
    return cache


@settings(max_examples=30)
@given(scale=st.sampled_from([0.0, 1e-5, 1.0, 300.0]), seed=st.integers(0, 2**32), tokens=st.integers(1, 9))
def test_a_number_is_off_by_half_a_step_of_its_head(scale: float, seed: int, tokens: int) -> None:
    random = torch.Generator().manual_seed(seed)
    pages = new_pages((3, BLOCK, KV_HEADS, HEAD_DIM), torch.int8, CPU)
    numbers = torch.randn(tokens, KV_HEADS, HEAD_DIM, generator=random) * scale
    slots = torch.randperm(3 * BLOCK, generator=random)[:tokens]
    store(pages, slots, numbers)
    back = fetch(pages, torch.arange(3), torch.float32).flatten(0, 1)[slots]
    step = numbers.abs().amax(-1, keepdim=True) / 127
    assert bool(((back - numbers).abs() <= step * 0.5001).all())


def _attended(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A chunk of nine tokens, then one token of it and the first five of another."""
    random = torch.Generator().manual_seed(seed)
    cache = make_cache(dtype, 5)
    outputs = []
    steps = [[make_chunk(0, 0, 9, [4, 1, 2])], [make_chunk(0, 9, 1, [4, 1, 2]), make_chunk(1, 0, 5, [3, 0])]]
    for chunks in steps:
        tokens = sum(len(chunk.token_ids) for chunk in chunks)
        query = torch.randn(tokens, HEADS, HEAD_DIM, generator=random)
        key, value = (torch.randn(tokens, KV_HEADS, HEAD_DIM, generator=random) for _ in range(2))
        layout = Layout.of(chunks, BLOCK, CPU)
        outputs.append(layout.attend(query, key, value, cache.keys[0], cache.values[0], ScoreOptions()))
    return torch.cat(outputs)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_quantized_attention_is_near_the_exact(seed: int) -> None:
    """Keys and values of a variance of 1 are off by 0.012 at the most, and scores by a few times that."""
    small, plain = _attended(torch.int8, seed), _attended(torch.float32, seed)
    assert float((small - plain).abs().max()) < 0.12
    assert float((small - plain).abs().mean()) < 0.01


def test_not_a_number_stays_with_its_own_token_and_goes_with_its_page() -> None:
    cache = make_cache(torch.int8, 2)
    numbers = torch.ones(2, KV_HEADS, HEAD_DIM)
    numbers[0, 0, 3] = torch.nan
    numbers[1, 1, 0] = torch.inf
    store(cache.keys[0], torch.tensor([0, 5]), numbers)
    back = fetch(cache.keys[0], torch.arange(2), torch.float32).flatten(0, 1)
    assert back[0, 0].isnan().all()
    assert torch.equal(back[0, 1], torch.ones(HEAD_DIM))
    assert not back[5, 1].isfinite().all()
    assert torch.equal(back[5, 0], torch.ones(HEAD_DIM))
    cache.clear(torch.tensor([0, 1]))
    assert not fetch(cache.keys[0], torch.arange(2), torch.float32).any()


def test_garbage_in_new_memory_reaches_no_sequence() -> None:
    cache = make_cache(torch.int8, 5)
    assert isinstance(cache.keys, SmallPages)
    assert isinstance(cache.values, SmallPages)
    for pages in (cache.keys, cache.values):
        pages.scales.fill_(torch.nan)
    chunks = [make_chunk(0, 0, 1, [2])]
    layout = Layout.of(chunks, BLOCK, CPU)
    cache.clear(layout.begun)
    ones = torch.ones(1, KV_HEADS, HEAD_DIM)
    output = layout.attend(torch.ones(1, HEADS, HEAD_DIM), ones, ones, cache.keys[0], cache.values[0], ScoreOptions())
    torch.testing.assert_close(output, torch.ones(1, HEADS, HEAD_DIM))


# ── a whole engine ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_safetensors(tiny_llama(), tmp_path_factory.mktemp("tiny"))


def make_engine(folder: Path, **options: object) -> Engine:
    settings = {"dtype": "float32", "device": "cpu", "kv_cache_bytes": 1 << 20, "kv_cache_dtype": "int8"} | options
    return Engine.load(EngineConfig(model=folder, **settings))  # type: ignore[arg-type]


def test_answers_are_near_those_of_numbers(folder: Path) -> None:
    """The best logit leads the average by about 20; one of a cache of codes picks within a fraction of one."""
    model = tiny_llama()
    for prompt, answer in zip(PROMPTS, answers(make_engine(folder), PROMPTS), strict=True):
        assert_greedy(model, prompt, answer, tolerance=0.5)


def test_chunks_batches_preemption_and_cached_pages_change_nothing(folder: Path) -> None:
    alone = [answers(make_engine(folder), [prompt])[0] for prompt in PROMPTS]
    assert answers(make_engine(folder), PROMPTS) == alone
    assert answers(make_engine(folder, max_num_batched_tokens=16, max_num_seqs=4), PROMPTS) == alone
    page = 2 * 2 * 2 * (8 + 4) * 16
    tight = make_engine(folder, kv_cache_bytes=17 * page)
    assert answers(tight, PROMPTS) == alone
    assert tight.stats().preemptions > 0
    caching = make_engine(folder)
    assert answers(caching, PROMPTS) == answers(caching, PROMPTS) == alone
    assert caching.stats().cached_prompt_tokens > 0


def test_more_pages_fit(folder: Path) -> None:
    """At a head size of 8, the 32 bytes of float32 become 8 bytes and a scale of 4."""
    plain, small = make_engine(folder, kv_cache_dtype="auto"), make_engine(folder)
    assert small.stats().kv_blocks_total == plain.stats().kv_blocks_total * 32 // 12


# ── how much of it ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 10 MiB, 6 of them free."""
    monkeypatch.setattr(memory, "memory", lambda: MemoryStatus(10 << 20, 6 << 20))


@pytest.mark.usefixtures("room")
def test_a_share_is_of_all_memory() -> None:
    assert kv_blocks(1, 0.5, 1 << 10, CPU) == 5 << 10


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("size", "share"), [(7 << 20, None), (1, 0.9)])
def test_more_than_is_free_is_refused_before_it_is_taken(size: int, share: float | None) -> None:
    with pytest.raises(
        NotEnoughMemory, match=r"the KV cache takes [79] MiB and 6 MiB of memory are free: lower kv_cache"
    ):
        kv_blocks(size, share, 1 << 10, CPU)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(ValueError, match="kv_cache_share must be"):
        kv_blocks(1, share, 1, CPU)


@pytest.mark.usefixtures("room")
def test_an_engine_takes_its_share(folder: Path) -> None:
    engine = make_engine(folder, kv_cache_dtype="auto", kv_cache_share=0.1)
    assert engine.stats().kv_blocks_total == (1 << 20) // (TINY_KV_BYTES * 16)
    assert bytes_per_position(2, 8, torch.float32) * 2 * 2 == TINY_KV_BYTES


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory", lambda: MemoryStatus(10 << 20, 30 << 10))
    with pytest.raises(
        NotEnoughMemory, match=r"the model takes \d+\.\d+ KiB and 30 KiB of memory are free: take weights"
    ):
        make_engine(folder)
    monkeypatch.setattr(memory, "memory", lambda: MemoryStatus(10 << 20, 45 << 10))
    with pytest.raises(NotEnoughMemory, match="the KV cache takes 1 MiB"):
        make_engine(folder, weights="int8")

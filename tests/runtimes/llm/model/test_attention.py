"""Paged attention equals attention over plain, contiguous keys and values."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.model.attention import KVCache, Layout, ScoreOptions
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

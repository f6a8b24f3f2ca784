"""The kernels equal the reference, for every mix of chunks, pages, windows and caps."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtimes.llm.cuda.layout import CudaLayout
from runtimes.llm.model.attention import Layout, Pages, ScoreOptions, SmallPages, new_pages, store
from runtimes.llm.sequence import Chunk, SamplingParams

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXACT = 2e-5
ROUNDED = {torch.float32: EXACT, torch.float16: 4e-3, torch.bfloat16: 3e-2}
Spans = Sequence[tuple[int, int]]


def chunks_of(spans: Spans, block_size: int) -> list[Chunk]:
    """A step of `spans` (start, count), on pages from the last downwards; single tokens come first."""
    ordered = sorted(spans, key=lambda span: span[1] > 1)
    pages = list(range(sum(-(-(start + count) // block_size) for start, count in ordered)))
    made = []
    for identity, (start, count) in enumerate(ordered):
        table = tuple(pages.pop() for _ in range(-(-(start + count) // block_size)))
        made.append(Chunk(identity, start, (0,) * count, table, True, SamplingParams(max_tokens=1), 0))
    return made


class Case:
    """Queries, keys and values of a step, and a cache with the earlier positions."""

    def __init__(
        self, spans: Spans, *, block_size: int = 4, heads: int = 4, kv_heads: int = 2, dim: int = 8,
        dtype: torch.dtype = torch.float32, codes: bool = False,
    ) -> None:  # fmt: skip
        self.chunks = chunks_of(spans, block_size)
        self.block_size = block_size
        self.group = heads // kv_heads
        generator = torch.Generator().manual_seed(0)
        tokens = sum(count for _, count in spans)
        self.query = torch.randn(tokens, heads, dim, generator=generator).to(DEVICE, dtype)
        self.key, self.value = (
            torch.randn(tokens, kv_heads, dim, generator=generator).to(DEVICE, dtype) for _ in range(2)
        )
        pages = sum(len(chunk.block_table) for chunk in self.chunks) + 1
        shape = (pages, block_size, kv_heads, dim)
        self.pages = [new_pages(shape, torch.int8 if codes else dtype, DEVICE) for _ in range(2)]
        before = torch.randn(2, pages * block_size, kv_heads, dim, generator=generator).to(DEVICE, dtype)
        for each, numbers in zip(self.pages, before, strict=True):
            store(each, torch.arange(pages * block_size, device=DEVICE), numbers)

    def reference(
        self, window: int | None, scale: float | None, soft_cap: float | None, sinks: Tensor | None = None
    ) -> Tensor:
        layout = Layout.of(self.chunks, self.block_size, DEVICE, [window])
        keys, values = map(copied, self.pages)
        return layout.attend(
            self.query, self.key, self.value, keys, values, ScoreOptions(window, scale, soft_cap), sinks
        )

    def computed(
        self, window: int | None = None, scale: float | None = None, soft_cap: float | None = None, segments: int = 1,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        layout = CudaLayout.of(self.chunks, self.block_size, self.group, DEVICE)
        layout = replace(layout, tiles=tuple(replace(tiles, segments=segments) for tiles in layout.tiles))
        keys, values = map(copied, self.pages)
        return layout.attend(
            self.query, self.key, self.value, keys, values, ScoreOptions(window, scale, soft_cap), sinks
        )


def copied(pages: Pages) -> Pages:
    return SmallPages(pages.codes.clone(), pages.scales.clone()) if isinstance(pages, SmallPages) else pages.clone()


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 7)), min_size=1, max_size=3)


@settings(deadline=None, max_examples=8)
@given(
    spans=spans,
    shape=st.sampled_from([(4, 4, 8), (6, 2, 16), (9, 3, 12)]),
    block_size=st.sampled_from([1, 3, 16]),
    window=st.none() | st.integers(1, 40),
    soft_cap=st.sampled_from([None, 2.0]),
)
def test_kernels_equal_the_reference(
    spans: Spans, shape: tuple[int, int, int], block_size: int, window: int | None, soft_cap: float | None
) -> None:
    heads, kv_heads, dim = shape
    case = Case(spans, block_size=block_size, heads=heads, kv_heads=kv_heads, dim=dim)
    expected = case.reference(window, 0.3, soft_cap)
    torch.testing.assert_close(case.computed(window, 0.3, soft_cap), expected, atol=EXACT, rtol=EXACT)
    sinks = torch.linspace(-2, 5, heads, device=DEVICE)
    expected = case.reference(window, 0.3, soft_cap, sinks)
    torch.testing.assert_close(case.computed(window, 0.3, soft_cap, sinks=sinks), expected, atol=EXACT, rtol=EXACT)


def test_a_chunk_of_several_tiles() -> None:
    case = Case([(3, 75), (40, 1)], block_size=16)
    torch.testing.assert_close(case.computed(), case.reference(None, None, None), atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("window", [None, 37])
@pytest.mark.parametrize("segments", [2, 8])
def test_segments_come_together(segments: int, window: int | None) -> None:
    """The short one has fewer strips than there are segments."""
    case = Case([(150, 1), (2, 1)], block_size=16)
    expected = case.reference(window, None, None)
    torch.testing.assert_close(case.computed(window, segments=segments), expected, atol=EXACT, rtol=EXACT)
    sinks = torch.linspace(-2, 5, 4, device=DEVICE)
    expected = case.reference(window, None, None, sinks)
    torch.testing.assert_close(case.computed(window, None, None, segments, sinks), expected, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and DEVICE.type != "cuda":
        pytest.skip("no CUDA device: Triton's interpreter does not compute in bfloat16")
    case = Case([(40, 1), (9, 5)], block_size=16, dim=16, dtype=dtype)
    tolerance = ROUNDED[dtype]
    torch.testing.assert_close(case.computed(), case.reference(None, None, None), atol=tolerance, rtol=tolerance)


def test_keys_and_values_as_codes() -> None:
    case = Case([(40, 1), (9, 5)], block_size=16, dim=16, codes=True)
    torch.testing.assert_close(case.computed(), case.reference(None, None, None), atol=EXACT, rtol=EXACT)


def test_the_rest_of_a_page_is_never_read() -> None:
    case = Case([(5, 1), (2, 3)], block_size=16)
    expected = case.computed()
    for chunk in case.chunks:
        for pages in case.pages:
            assert isinstance(pages, Tensor)
            pages[chunk.block_table[-1], chunk.end % 16 :] = torch.nan
    torch.testing.assert_close(case.computed(), expected, atol=0, rtol=0)

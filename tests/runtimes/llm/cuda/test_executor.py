"""The executor of a GPU computes what the reference does; graphs are recorded here by remembering what to compute."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from runtimes.llm import memory
from runtimes.llm.cuda import executor
from runtimes.llm.cuda.executor import Compute, CudaExecutor, record_graph, row_of, scratch_row, sizes_up_to
from runtimes.llm.cuda.layout import TABLE
from runtimes.llm.engine import executor as executors
from runtimes.llm.engine.executor import Executor, TorchExecutor
from runtimes.llm.memory import MemoryStatus, NotEnoughMemory
from runtimes.llm.model.llama import Llama
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.sequence import Chunk, SamplingParams
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import save_safetensors, tiny_llama

ON_GPU = torch.cuda.is_available()
BLOCK = 4


class Recorder:
    """A stand-in for CUDA graphs: it records steps and computes them again when they are replayed."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.replayed: list[Tensor] = []

    def __call__(self, compute: Compute, step: Tensor) -> Callable[[], Tensor]:
        self.sizes.append(len(step))

        def replay() -> Tensor:
            self.replayed.append(step.clone())
            with torch.inference_mode():
                return compute(step)

        return replay


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    folder = save_safetensors(tiny_llama(), tmp_path_factory.mktemp("tiny"))
    return load_model(folder, dtype="float32", device="cuda" if ON_GPU else "cpu")


def chunk(identity: int, tokens: list[int], pages: list[int], start: int = 0) -> Chunk:
    return Chunk(identity, start, tuple(tokens), tuple(pages), True, SamplingParams(max_tokens=1), 0)


def close(computed: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(computed, expected, atol=1e-4, rtol=1e-4)


def test_sizes_of_graphs() -> None:
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(3) == [1, 2, 3]
    assert sizes_up_to(20) == [1, 2, 4, 8, 16, 20]
    assert sizes_up_to(64) == [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]
    assert sizes_up_to(100) == [*sizes_up_to(64), 80, 96, 100]


def test_a_row_and_one_too_many() -> None:
    assert row_of(chunk(0, [7], [5, 3, 9], start=6), 4, 5) == [7, 6, 14, 7, 5, 3, 9, 0, 0]
    assert scratch_row(11, 4, 3).tolist() == [0, 0, 44, 1, 11, 11, 11]


def test_any_step_is_computed_as_the_reference_does(model: Llama) -> None:
    executors: list[Executor] = [TorchExecutor(model, 12, BLOCK), CudaExecutor(model, 12, BLOCK)]
    begun = [chunk(0, [3, 1, 4, 1, 5], [7, 2]), chunk(1, [9], [0]), chunk(2, [2, 6, 5], [1])]
    expected, computed = (one.logits(begun, [8, 4, 5]) for one in executors)
    close(computed, expected)
    mixed = [chunk(0, [9, 2, 6, 5], [7, 2, 5], start=5), chunk(2, [8], [1], start=3), chunk(3, [4, 4], [8])]
    expected, computed = (one.logits(mixed, [6, 3, 4, 3]) for one in executors)
    close(computed, expected)
    expected, computed = (one.hidden(mixed) for one in executors)
    close(computed, expected)


def test_single_tokens_are_replayed_and_touch_no_page_but_theirs_and_the_scratch(
    model: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PROGRAMS", 16)  # two segments, where each program takes as long as all others
    recorder = Recorder()
    plain = TorchExecutor(model, 12, BLOCK, context_length=16)
    graphed = CudaExecutor(model, 12, BLOCK, context_length=16, max_num_seqs=5, record=recorder)
    assert recorder.sizes == [5, 4, 2, 1]
    graphed.cache.keys.zero_()  # type: ignore[union-attr]
    prompts = [chunk(i, [i + 1] * (i + 2), [2 * i, 2 * i + 1]) for i in range(3)]
    rows = [sum(len(one.token_ids) for one in prompts[: i + 1]) - 1 for i in range(3)]
    close(graphed.logits(prompts, rows), plain.logits(prompts, rows))
    assert recorder.replayed == []

    step = [chunk(i, [90 - i], [2 * i, 2 * i + 1], start=i + 2) for i in range(3)]
    expected = plain.logits(step, range(3))
    close(graphed.logits(step, range(3)), expected)
    close(graphed.logits(step, [2, 1, 1]), expected[[2, 1, 1]])
    [first, *_] = recorder.replayed
    assert first.shape == (4, TABLE + 4)
    assert first[3:].tolist() == [scratch_row(12, BLOCK, 4).tolist()]
    keys = graphed.cache.keys
    assert isinstance(keys, Tensor)
    assert not keys[:, 6:12].any()  # pages of no sequence
    assert keys[:, 12, 0].any()  # what was too many
    assert not keys[:, 12, 1:].any()


def test_rows_of_pictures_are_in_any_step_and_in_no_graph(model: Llama) -> None:
    recorder = Recorder()
    plain = TorchExecutor(model, 12, BLOCK, context_length=16)
    graphed = CudaExecutor(model, 12, BLOCK, context_length=16, max_num_seqs=2, record=recorder)
    blind = CudaExecutor(model, 12, BLOCK, context_length=16)
    rows = PictureRows(3, (1, 5), (b"a", b"b"), (torch.randn(3, 32), torch.randn(3, 32)))
    seeing = partial(replace, pictures=rows)
    steps = [
        [chunk(1, [9], [0]), seeing(chunk(0, [3, 1], [7, 2, 5]))],
        [seeing(chunk(0, [1], [7, 2, 5], start=2))],
        [seeing(chunk(0, [1, 4, 1, 1, 1, 6], [7, 2, 5], start=3)), chunk(1, [8], [0], start=1)],
    ]
    for step in steps:
        last = range(sum(len(one.token_ids) for one in step))
        expected = plain.logits(step, last)
        close(graphed.logits(step, last), expected)
        assert not torch.allclose(blind.logits([replace(one, pictures=None) for one in step], last), expected)
    assert recorder.replayed == []


def test_codes_in_the_cache(model: Llama) -> None:
    make = (TorchExecutor, CudaExecutor)
    step = [chunk(0, [3, 1, 4, 1, 5], [7, 2]), chunk(1, [9], [0])]
    expected, computed = (one(model, 12, BLOCK, kv_dtype=torch.int8).logits(step, [4, 5]) for one in make)
    close(computed, expected)


def test_the_largest_step_is_measured(model: Llama) -> None:
    chunks = executor.largest_step(40, 6, BLOCK, context_length=256)
    assert [len(one.token_ids) for one in chunks] == [35, 1, 1, 1, 1, 1]
    assert len({page for one in chunks for page in one.block_table}) == 9 + 5
    assert [len(one.token_ids) for one in executor.largest_step(900, 1, BLOCK, context_length=256)] == [256]
    assert [len(one.token_ids) for one in executor.largest_step(2, 8, BLOCK, context_length=256)] == [1, 1]
    computed: list[object] = []

    def measure(device: torch.device, compute: Callable[[], object]) -> int:
        computed.append(compute())
        return 1000

    assert executor.memory_of_steps(model, 10, 3, BLOCK, measure) == executor.SHARES * 1000
    [logits] = computed
    assert isinstance(logits, Tensor)
    assert logits.shape == (3, 96)


def test_the_executor_of_a_gpu_is_chosen_with_the_model(model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_cuda", lambda model: partial(CudaExecutor, record=Recorder()))
    sizes = {"context_length": 32, "kv_dtype": torch.float32, "max_num_seqs": 2}
    assert isinstance(executors.make_executor("auto", model, 4, BLOCK, **sizes), CudaExecutor)
    assert isinstance(executors.make_executor("torch", model, 4, BLOCK, **sizes), TorchExecutor)
    assert executors.memory_of_steps("torch", model, 8, 2, BLOCK) == 0
    monkeypatch.setattr(executor, "peak", lambda device, compute: 500)
    assert executors.memory_of_steps("auto", model, 8, 2, BLOCK) == 1000


def test_a_share_of_a_gpu_excludes_the_memory_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(memory, "memory_of", lambda device: MemoryStatus(total=2000, available=1000))
    assert memory.kv_blocks(0, 0.5, 10, gpu, steps=200) == 40
    assert memory.kv_blocks(0, 1.0, 10, gpu, steps=200) == 80
    assert memory.kv_blocks(800, None, 10, gpu, steps=200) == 80
    with pytest.raises(NotEnoughMemory, match="the KV cache takes 810 B and 800 B of memory are free"):
        memory.kv_blocks(810, None, 10, gpu, steps=200)
    with pytest.raises(ValueError, match="one page alone takes"):
        memory.kv_blocks(0, 1.0, 10, gpu, steps=1000)


@pytest.mark.skipif(not ON_GPU, reason="no CUDA device")
def test_graphs_of_a_gpu(model: Llama) -> None:
    plain = TorchExecutor(model, 12, BLOCK, context_length=32)
    graphed = CudaExecutor(model, 12, BLOCK, context_length=32, max_num_seqs=9, record=record_graph)
    for position in range(6):
        step = [chunk(i, [9 * i + position], [2 * i, 2 * i + 1], start=position) for i in range(5)]
        close(graphed.logits(step, range(5)), plain.logits(step, range(5)))
    assert executor.memory_of_steps(model, 64, 4, BLOCK) > 0

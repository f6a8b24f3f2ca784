"""A model with an adapter gives the numbers that PEFT computes, alone and beside others in one batch."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.sequence import Chunk, StepAdapter
from runtimes.llm.weights.adapter_files import read_adapter
from runtimes.llm.weights.loader import load_model, open_checkpoint
from tests.runtimes.llm.families import CONTEXT, write_gguf
from tests.runtimes.llm.lora import TARGETS, adapted, random_adapter, tiny
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import run

PROMPT = [(7 * i + i * i // 5) % 250 for i in range(90)]
PROMPTS = [[5], [7, 3, 9], PROMPT[10:44], PROMPT]
NEAR = {"atol": 2e-4, "rtol": 1e-4}
BLOCK = 16


class Folders:
    """The base model and its adapter, as transformers and PEFT save them."""

    def __init__(self, folder: Path, row: str, **fields: Any) -> None:
        self.base, self.adapter = folder / "base", folder / "adapter"
        save_safetensors(model := tiny(row), self.base)
        self.theirs = adapted(model, self.adapter, **{"target_modules": TARGETS[row], **fields})

    def logprobs(self, tokens: Sequence[int], base: Path | None = None) -> Tensor:
        model = load_model(base or self.base, dtype="float32", device="cpu")
        executor = TorchExecutor(model, CONTEXT // BLOCK, BLOCK)
        own = executor.prepared(read_adapter(self.adapter, open_checkpoint(base or self.base).adapter_base))
        pages = tuple(range(CONTEXT // BLOCK))
        chunk = Chunk(0, 0, tuple(tokens), pages, True, SamplingParams(max_tokens=1), 0, adapter=own)
        return executor.logits([chunk], range(len(tokens))).log_softmax(-1)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def their_logprobs(self, tokens: Sequence[int]) -> Tensor:
        logprobs: Tensor = self.theirs(torch.tensor([list(tokens)])).logits[0].log_softmax(-1)
        return logprobs


@pytest.mark.parametrize("row", TARGETS)
def test_log_probabilities_are_those_of_peft(row: str, tmp_path: Path) -> None:
    folders = Folders(tmp_path, row)
    expected = folders.their_logprobs(PROMPT)
    torch.testing.assert_close(folders.logprobs(PROMPT), expected, **NEAR)
    with folders.theirs.disable_adapter():
        assert (folders.their_logprobs(PROMPT) - expected).abs().max() > 0.1


@pytest.mark.parametrize("row", ["llama", "qwen3", "phi3", "gemma", "gpt2"])
def test_answers_are_those_of_peft(row: str, tmp_path: Path) -> None:
    """All in one batch, the prompts in chunks, beside the same prompts without the adapter."""
    folders = Folders(tmp_path, row)
    engine = engine_of(folders.base, max_num_batched_tokens=50)
    own = prepared(engine, folders)
    given = answers(engine, [(prompt, one) for prompt in PROMPTS for one in (own, None)])
    for prompt, answer in zip(PROMPTS, given[::2], strict=True):
        assert_greedy(folders.theirs, prompt, answer)
    with folders.theirs.disable_adapter():
        for prompt, answer in zip(PROMPTS, given[1::2], strict=True):
            assert_greedy(folders.theirs, prompt, answer)


def test_a_gguf_file_takes_the_adapter_of_its_folder(tmp_path: Path) -> None:
    folders = Folders(tmp_path, "llama")
    path = write_gguf(tmp_path / "model.gguf", tiny("llama"))
    torch.testing.assert_close(folders.logprobs(PROMPT, path), folders.their_logprobs(PROMPT), **NEAR)


def test_a_pickled_adapter_is_the_same(tmp_path: Path) -> None:
    folders = Folders(tmp_path, "llama")
    folders.theirs.save_pretrained(folders.adapter, safe_serialization=False)
    (folders.adapter / "adapter_model.safetensors").unlink()
    torch.testing.assert_close(folders.logprobs(PROMPT), folders.their_logprobs(PROMPT), **NEAR)


TARGETED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANKED = ("q_proj", "up_proj", r"layers\.1\..*", "model.layers.0.mlp.down_proj")
FACTORED = ("v_proj", r".*\.0\.mlp\..*", "self_attn.o_proj")


def _patterns(names: Sequence[str]) -> st.SearchStrategy[dict[str, int]]:
    """In the order in which PEFT writes them: the first that matches counts."""
    return st.dictionaries(st.sampled_from(names), st.integers(1, 40)).map(lambda of: dict(sorted(of.items())))


@given(
    rank=st.integers(1, 80),
    alpha=st.integers(1, 64),
    targets=st.sets(st.sampled_from(TARGETED), min_size=1),
    root=st.booleans(),
    ranks=_patterns(RANKED),
    alphas=_patterns(FACTORED),
)
def test_ranks_factors_and_targets(
    rank: int, alpha: int, targets: set[str], root: bool, ranks: dict[str, int], alphas: dict[str, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        folders = Folders(
            Path(folder), "llama", r=rank, lora_alpha=alpha, target_modules=sorted(targets), use_rslora=root,
            rank_pattern=ranks, alpha_pattern=alphas,
        )  # fmt: skip
        # Large factors make large numbers, and float32 errors with them.
        expected = folders.their_logprobs(PROMPT[:20])
        torch.testing.assert_close(folders.logprobs(PROMPT[:20]), expected, atol=2e-3, rtol=1e-3)


def test_eight_adapters_in_one_batch_are_each_as_alone(tmp_path: Path) -> None:
    base = _base(tmp_path)
    engine = engine_of(base, max_num_batched_tokens=50, max_num_seqs=16)
    config = open_checkpoint(base).config
    assert engine.prepared is not None
    own = [engine.prepared(random_adapter(config, 1 + 3 * seed, seed)) for seed in range(8)]
    work = [(PROMPTS[i % 4], one) for i, one in enumerate([*own, None, None, *own])]
    together = answers(engine, work)
    alone = [answers(engine_of(base, max_num_seqs=1), [one])[0] for one in work]
    assert together == alone
    assert len({tuple(answer) for answer in together}) > 8


def test_adapters_share_no_cached_pages(tmp_path: Path) -> None:
    """Of one prompt: each adapter, and the model, reuse their own pages and no others."""
    base = _base(tmp_path)
    engine = engine_of(base)
    config = open_checkpoint(base).config
    assert engine.prepared is not None
    own: list[StepAdapter | None] = [None, *(engine.prepared(random_adapter(config, 4, seed)) for seed in range(2))]
    expected = [answers(engine_of(base), [(PROMPT, one)])[0] for one in own]
    assert [_cached(engine, one) for one in own] == [0, 0, 0]
    assert [_cached(engine, one) for one in own] == [80, 80, 80]
    assert answers(engine, [(PROMPT, one) for one in own]) == expected
    again = engine.prepared(random_adapter(config, 4, 0))  # evicted, and loaded again
    assert _cached(engine, again) == 80


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_quantized_model_takes_an_adapter(weights: Any, tmp_path: Path) -> None:
    """The addition is that of the adapter to the quantized model, which its own numbers as a plain matrix show."""
    base = _base(tmp_path)
    config = open_checkpoint(base).config
    adapter = random_adapter(config, 4, only=["down"])
    given, plain = (
        TorchExecutor(load_model(base, dtype="float32", device="cpu", weights=weights), CONTEXT // BLOCK, BLOCK)
        for _ in range(2)
    )
    for layer, additions in zip(plain.model.layers, adapter.layers, strict=True):
        (one,) = additions["down"]
        weight: Any = layer.down
        object.__setattr__(layer, "down", weight.dequantized() + one.up @ one.down)
    pages, params = tuple(range(CONTEXT // BLOCK)), SamplingParams(max_tokens=1)
    chunk = Chunk(0, 0, tuple(PROMPT), pages, True, params, 0)
    own = Chunk(0, 0, tuple(PROMPT), pages, True, params, 0, adapter=given.prepared(adapter))
    rows = range(len(PROMPT))
    torch.testing.assert_close(given.logits([own], rows), plain.logits([chunk], rows), **NEAR)


@cache
def _model() -> Any:
    return tiny("llama")


def _base(folder: Path) -> Path:
    return save_safetensors(_model(), folder / "base")


def engine_of(base: Path, **bounds: Any) -> Engine:
    settings: dict[str, Any] = {"kv_cache_bytes": 1 << 22, "max_num_seqs": 8, **bounds}
    return Engine.load(EngineConfig(model=base, dtype="float32", device="cpu", **settings))


def prepared(engine: Engine, folders: Folders) -> StepAdapter:
    assert engine.prepared is not None
    return engine.prepared(read_adapter(folders.adapter, open_checkpoint(folders.base).adapter_base))


def answers(engine: Engine, work: Sequence[tuple[Sequence[int], StepAdapter | None]]) -> list[list[int]]:
    params = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0)
    ids = [engine.add(prompt, params, adapter=one) for prompt, one in work]
    outputs = run(engine)
    return [[output.token_id for output in outputs[identity]] for identity in ids]


def _cached(engine: Engine, adapter: StepAdapter | None) -> int:
    """The number of the prompt's tokens that came from the cache."""
    identity = engine.add(PROMPT, SamplingParams(max_tokens=1), adapter=adapter)
    return run(engine)[identity][-1].cached_tokens

"""A model that several ranks compute is the same model, and one that they cannot share is refused by its reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel
from runtimes.llm.model.shapes.parts import ExpertShape
from runtimes.llm.model.split import ModelSplit
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.loader import load_model, open_checkpoint
from tests.runtimes.llm import families
from tests.runtimes.llm.family_rows import CONTEXT, ROWS
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.rank_threads import in_all, split_model
from tests.runtimes.llm.reference import save_safetensors

BLOCK = 16
PROMPT = [(7 * i + i * i // 5) % 250 for i in range(70)]
CUTS = [1, 17, 48, 49]


def logprobs(model: Llama) -> torch.Tensor:
    """After every token of PROMPT, computed in steps that end at `CUTS`."""
    executor = TorchExecutor(model, CONTEXT // BLOCK, BLOCK, context_length=CONTEXT)
    pages = tuple(reversed(range(CONTEXT // BLOCK)))
    parts = []
    for start, end in zip([0, *CUTS], [*CUTS, len(PROMPT)], strict=True):
        chunk = Chunk(0, start, tuple(PROMPT[start:end]), pages, True, SamplingParams(max_tokens=1), 0)
        parts.append(executor.logits([chunk], range(end - start)))
    return torch.cat(parts).log_softmax(-1)


def assert_same(path: Path, size: int, **how: Any) -> None:
    whole = load_model(path, **({"dtype": "float32", "device": "cpu"} | how))
    torch.testing.assert_close(in_all(split_model(path, size, **how), logprobs), logprobs(whole), atol=2e-4, rtol=0)


PARTS: dict[str, Callable[[ModelShape], bool]] = {
    "recurrent layers": lambda shape: shape.recurrent is not None,
    "short convolutions": lambda shape: bool(shape.conv_layers),
    "latent attention": lambda shape: shape.latent is not None,
    "several hidden states of a token": lambda shape: shape.streams is not None,
    "embeddings for each layer": lambda shape: shape.per_layer is not None,
    "layers differ in their heads": lambda shape: any(kind.heads is not None for kind in shape.kinds),
    "norm of queries spans all heads": lambda shape: shape.qk_norm == "whole",
}
"""The parts of the models here that have no split."""


@pytest.mark.parametrize("row", ROWS)
def test_a_family_is_the_same_model_on_two_ranks_or_refused(tmp_path: Path, row: str) -> None:
    path = save_safetensors(tiny(row), tmp_path)
    shape = open_checkpoint(path).config
    reasons = [part for part, there in PARTS.items() if there(shape)]
    if not reasons:
        assert_same(path, 2)
        return
    match = f"tensor_parallel is 2: .*({'|'.join(reasons)}).* cannot be split"
    with pytest.raises(UnsupportedModel, match=match):
        split_model(path, 2)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_dense_model_is_the_same_on_two_ranks(tmp_path: Path, family: str) -> None:
    assert_same(save_safetensors(families.tiny(family), tmp_path), 2)


def test_ranks_share_a_key_head_and_a_vocabulary_of_an_odd_size(tmp_path: Path) -> None:
    assert_same(save_safetensors(families.tiny("llama-biased", vocab_size=259), tmp_path), 4)


def test_three_ranks_compute_the_bundled_model(bundled_model: Path) -> None:
    whole, prompt = load_model(bundled_model, dtype="float32", device="cpu"), PROMPT[:20]

    def last(model: Llama) -> torch.Tensor:
        executor = TorchExecutor(model, 2, BLOCK, context_length=32)
        chunk = Chunk(0, 0, tuple(prompt), (1, 0), True, SamplingParams(max_tokens=1), 0)
        return executor.logits([chunk], [19]).log_softmax(-1)

    torch.testing.assert_close(in_all(split_model(bundled_model, 3), last), last(whole), atol=2e-4, rtol=0)


def test_matrices_in_the_place_of_layers_are_refused(tmp_path: Path) -> None:
    config = replace(open_checkpoint(save_safetensors(families.tiny("llama"), tmp_path)).config)
    for changes, reason in (
        ({"straight_mlp": frozenset({1}), "without_mlp": frozenset({1})}, "one matrix in the place of attention"),
        ({"sparsity": (0.0, 0.9)}, "sparse gates cannot be split"),
        ({"experts": ExpertShape(count=4, chosen=2, intermediate_size=48, apart=True)}, "experts apart from an MLP"),
    ):
        with pytest.raises(UnsupportedModel, match=reason):
            ModelSplit.of(replace(config, **changes), 0, 2)


# ── quantized ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_codes_are_those_of_one_rank(tmp_path: Path, weights: str) -> None:
    wide = families.tiny("qwen3", intermediate_size=128)
    assert_same(save_safetensors(wide, tmp_path), 2, weights=weights)


@pytest.mark.parametrize("weights", ["stored", "unquantized"])
def test_blocks_of_a_file_are_those_of_one_rank(tmp_path: Path, weights: str) -> None:
    wide = families.tiny("llama", intermediate_size=128)
    file = families.write_gguf(tmp_path / "model.gguf", wide, quantise=gguf.GGMLQuantizationType.Q4_0)
    assert_same(file, 2, weights=weights)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_group_is_not_cut(tmp_path: Path, weights: str) -> None:
    path = save_safetensors(families.tiny("qwen3"), tmp_path)  # 96 neurons: 48 each, in groups of 32
    with pytest.raises(UnsupportedModel, match=r"down_proj\.weight is quantized in groups of 32 numbers.* 48 of a row"):
        split_model(path, 2, weights=weights)


def test_a_block_of_a_file_is_not_cut(tmp_path: Path) -> None:
    file = families.write_gguf(tmp_path / "model.gguf", families.tiny("llama"), quantise=gguf.GGMLQuantizationType.Q4_0)
    with pytest.raises(UnsupportedModel, match=r"down_proj\.weight is quantized in groups of 32"):
        split_model(file, 2, weights="stored")


# ── numbers that ranks cannot share ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "size", "reason"),
    [
        ({}, 3, "4 heads cannot be shared evenly; for this model it may be 1, 2, 4"),
        ({"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3}, 2, "3 key heads .* may be 1, 3, 6"),
        ({"intermediate_size": 97}, 2, "97 neurons of an MLP .* may be 1"),
    ],
)
def test_the_numbers_that_fit_are_named(tmp_path: Path, changes: dict[str, Any], size: int, reason: str) -> None:
    config = open_checkpoint(save_safetensors(families.tiny("llama", **changes), tmp_path)).config
    with pytest.raises(UnsupportedModel, match=f"^tensor_parallel is {size}: {reason}"):
        ModelSplit.of(config, 0, size)


def test_experts_that_cannot_be_shared_are_refused(tmp_path: Path) -> None:
    config = open_checkpoint(save_safetensors(tiny("qwen3_moe", moe_intermediate_size=49), tmp_path)).config
    with pytest.raises(UnsupportedModel, match="49 neurons of an expert cannot be shared evenly"):
        ModelSplit.of(config, 0, 2)


def test_a_rank_holds_its_part_alone(tmp_path: Path) -> None:
    path = save_safetensors(families.tiny("llama"), tmp_path)
    whole, (first, second) = load_model(path, dtype="float32", device="cpu"), split_model(path, 2)
    for mine, every in zip((*first.layers, *second.layers), whole.layers * 2, strict=True):
        for name in ("qkv", "attention_out", "gate_up", "down"):
            assert getattr(mine, name).numel() * 2 == getattr(every, name).numel()
    assert first.embedding.shape[0] + second.embedding.shape[0] == whole.embedding.shape[0]
    assert first.kv_bytes_per_token * 2 == whole.kv_bytes_per_token

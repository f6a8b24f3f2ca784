"""AWQ's factors change no number of a model, and make its codes nearer to what it computes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runtimes.llm.calibration.awq import Fold, ScaledLayer, best_factors, folds
from runtimes.llm.calibration.layer_run import Inputs, LayerRun
from runtimes.llm.calibration.writer import Calibration, write_calibrated
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.weights.loader import load_model
from runtimes.llm.weights.quantized_writer import write_quantized
from tests.runtimes.llm import families, family_table
from tests.runtimes.llm.native.models import chunk
from tests.runtimes.llm.reference import save_safetensors, tiny_llama

PAGES = [0, 1, 2, 3]
# What a fold must find: biases, norms stored as offsets, LayerNorm, fused matrices, experts, a gate beside attention.
FOLDED = {
    "llama-biased": 4, "qwen2": 4, "gemma2": 4, "gemma3": 4, "phi3": 4, "starcoder2": 3, "olmo2": 2, "cohere": 2,
    "qwen2_moe": 9, "qwen3_next": 7, "falcon_h1": 3, "deepseek_v2": 2, "apertus": 3, "gpt2": 0,
}  # fmt: skip


def texts(vocabulary: int, count: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(0, vocabulary, (64,), generator=random).tolist() for _ in range(count)]


def log_probabilities(folder: Path, text: list[int]) -> Tensor:
    executor = TorchExecutor(load_model(folder, dtype="float32", device="cpu"), 4, 16)
    return torch.log_softmax(executor.logits([chunk(0, text, PAGES)], range(len(text))), dim=-1)


@pytest.mark.parametrize(("row", "count"), FOLDED.items())
def test_a_model_with_factors_is_the_same_model(tmp_path: Path, row: str, count: int) -> None:
    of = families if row in families.FAMILIES else family_table
    run = LayerRun(save_safetensors(of.tiny(row), tmp_path), texts(250, 4))
    moved = 0
    for index in range(run.layers):
        expected = run._run(index, run._read(index))
        inputs = run.observed(index, [*run.files]).inputs
        layer = ScaledLayer(run.checkpoint, run.files, index, inputs, 1)
        for fold in folds(run.checkpoint.config, index):
            before = len(layer.calibrated)
            layer.scale(fold, 4, 16)
            moved += index == 0 and len(layer.calibrated) > before
        run.files.replaced.update(layer.tensors)
        run.advance(index)
        run.files.replaced.clear()
        for ours, theirs in zip(run._states, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
        assert bool(layer.tensors) == bool(layer.calibrated)
    assert moved == count


def outlying(folder: Path) -> Path:
    """A Llama whose norms make a few channels much larger than the others, as trained models have them."""
    model = tiny_llama(hidden_size=64, intermediate_size=96, initializer_range=0.1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("layernorm.weight"):
                weight[::16] *= 20
                weight[1::16] *= 5
    return save_safetensors(model, folder)


def test_large_inputs_are_rounded_more_finely(tmp_path: Path) -> None:
    source, given = outlying(tmp_path / "source"), texts(96, 12)
    written = write_calibrated(source, tmp_path / "awq", Calibration(4, 32, "awq"), given)
    assert (written.matrices, written.nearest) == (14, 0)
    write_quantized(source, tmp_path / "nearest", 4, 32)
    errors: dict[str, float] = {}
    for name in ("awq", "nearest"):
        errors[name] = sum(
            float((log_probabilities(tmp_path / name, text) - log_probabilities(source, text)).square().mean())
            for text in given[:4]
        )
    assert errors["awq"] < 0.8 * errors["nearest"]


def test_transformers_reads_the_same_numbers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    write_calibrated(outlying(tmp_path / "source"), tmp_path / "awq", Calibration(4, 32, "awq"), texts(96, 6))
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "awq", dtype=torch.float32).eval()
    text = texts(96, 1)[0]
    with torch.inference_mode():
        expected = torch.log_softmax(theirs(torch.tensor([text])).logits[0], dim=-1)
    torch.testing.assert_close(log_probabilities(tmp_path / "awq", text), expected, atol=2e-4, rtol=0)


def test_heads_that_share_a_value_share_its_factor() -> None:
    """Two key heads of three numbers, each read by two heads."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 12, generator=random) * torch.tensor([9.0, 1, 1, 9, 1, 1, 1, 1, 1, 1, 30, 1])
    inputs = Inputs(torch.zeros(12, 12), torch.zeros(12), 0)
    inputs.add(rows)
    weight = torch.randn(8, 12, generator=random)
    chosen = best_factors([weight], inputs, Fold("v", ("o",), shared=2, head_dim=3), 4, 6)
    assert chosen is not None
    factors, columns = chosen
    assert factors.shape == (6,)
    assert torch.equal(columns.view(2, 2, 3), factors.view(2, 1, 3).expand(2, 2, 3))


def test_even_inputs_have_no_factors() -> None:
    rows = torch.eye(32).repeat(4, 1)
    inputs = Inputs(torch.zeros(32, 32), torch.zeros(32), 0)
    inputs.add(rows)
    assert best_factors([torch.ones(4, 32)], inputs, Fold("norm", ("q",)), 4, 32) is None

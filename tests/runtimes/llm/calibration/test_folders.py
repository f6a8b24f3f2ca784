"""Calibrated folders: the layers are those of the model, and the folder is the same model for other libraries."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from runtimes.llm.calibration.layer_run import LayerRun
from runtimes.llm.calibration.writer import Calibration, write_calibrated
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.matrix import GroupQuantized
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.llm.weights.quantized_writer import QuantizedFolder, write_quantized
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.native.models import chunk
from tests.runtimes.llm.reference import save_safetensors, tiny_llama

PAGES = [0, 1, 2, 3]
FAMILIES = [
    "qwen3_moe", "qwen2_moe", "granitemoehybrid", "falcon_h1", "nemotron_h", "qwen3_next", "gemma",
    "llama4_text", "mistral4", "deepseek_v32", "mllama_text_model",
    "deepseek_v2", "lfm2-biased", "cohere2", "olmo2", "phi", "gpt2",
]  # fmt: skip


def texts(vocabulary: int = 96, count: int = 16) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    lengths = [64 - at % 5 for at in range(count)]
    return [torch.randint(0, vocabulary, (length,), generator=random).tolist() for length in lengths]


def log_probabilities(folder: Path, text: Sequence[int], weights: Any = "auto") -> Tensor:
    executor = TorchExecutor(load_model(folder, dtype="float32", device="cpu", weights=weights), 4, 16)
    return torch.log_softmax(executor.logits([chunk(0, text, PAGES)], range(len(text))), dim=-1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny_llama(hidden_size=64, intermediate_size=96, initializer_range=0.1)
    return save_safetensors(model, tmp_path_factory.mktemp("source"))


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ("gemma3n_text", "several hidden states of a token"),
        ("gemma4_text", "embeddings for each layer"),
        ("gemma4_text-experts", "norms of values"),
        ("glm_moe_dsa", "an indexer that layers share"),
    ],
)
def test_layers_that_depend_on_others_are_refused(tmp_path: Path, row: str, part: str) -> None:
    folder = save_safetensors(tiny(row), tmp_path / "source")
    with pytest.raises(UnsupportedModel, match=f"one layer after the other, and source has {part}: use --method rtn"):
        LayerRun(folder, texts(250, 3))


@pytest.mark.parametrize("row", FAMILIES)
def test_layers_one_by_one_are_the_model(tmp_path: Path, row: str) -> None:
    folder = save_safetensors(tiny(row), tmp_path / "source")
    given = texts(250, 3)
    run = LayerRun(folder, given)
    for index in range(run.layers):
        run.advance(index)
    model = load_model(folder, dtype="float32", device="cpu")
    executor = TorchExecutor(model, 4, 16)
    for text, states in zip(given, run._states, strict=True):
        assert states is not None
        normed = model._normed(states, model.norm, model.norm_bias)
        torch.testing.assert_close(normed, executor.hidden([chunk(0, text, PAGES)]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", FAMILIES)
def test_each_matrix_sees_its_inputs(tmp_path: Path, row: str) -> None:
    """All but those of experts that no token chose, and the ones that latent attention moves to the queries."""
    folder = save_safetensors(tiny(row), tmp_path / "source")
    run = LayerRun(folder, texts(250, 3))
    names = [name for name in run.files if len(run.files.shape(name)) == 2]
    observed = run.observed(0, names)
    inside = {name for name in names if ".0." in name and name in observed.stored and "experts" not in name}
    unseen = inside - observed.inputs.keys()
    routers = {name for name in inside if name.endswith(("gate.weight", "router.weight", "router.layer.weight"))}
    assert unseen <= routers | {name for name in names if "kv_b_proj" in name}
    assert len(inside - unseen) > 1
    for name, inputs in observed.inputs.items():
        if row != "gpt2":  # whose matrices are [in, out]
            assert inputs.gram.shape == (run.files.shape(name)[1],) * 2
        assert 0 < inputs.count <= sum(map(len, texts(250, 3)))
        assert bool((inputs.gram.diagonal() * inputs.count >= inputs.magnitude.square() * 0.999).all())  # Cauchy


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_folder_is_nearer_to_the_model(source: Path, tmp_path: Path, bits: Any, act_order: bool) -> None:
    given = texts()
    written = write_calibrated(source, tmp_path / "small", Calibration(bits, 32, "gptq", act_order), given)
    assert (written.matrices, written.nearest) == (14, 0)
    write_quantized(source, tmp_path / "nearest", bits, 32)
    whole = [log_probabilities(source, text) for text in given[:4]]
    errors = [
        sum(
            float((log_probabilities(tmp_path / name, text) - expected).square().mean())
            for text, expected in zip(given[:4], whole, strict=True)
        )
        for name in ("small", "nearest")
    ]
    assert errors[0] < 0.75 * errors[1]
    down = load_model(tmp_path / "small", dtype="float32", device="cpu", weights="stored").layers[0].down
    assert isinstance(down, GroupQuantized)
    assert (down.bits, down.group) == (bits, 32)


@pytest.mark.parametrize("act_order", [False, True])
def test_transformers_reads_the_same_numbers(source: Path, tmp_path: Path, act_order: bool) -> None:
    """And so does a model of plain numbers that the codes stand for."""
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    write_calibrated(source, tmp_path / "small", Calibration(4, 32, "gptq", act_order), texts())
    text = texts()[0]
    ours = log_probabilities(tmp_path / "small", text)
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype=torch.float32).eval()
    plain = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    stored = load_file(tmp_path / "small" / "model-00001-of-00001.safetensors")
    for name, module in plain.named_modules():
        if f"{name}.weight_packed" in stored:
            words, scales = stored[f"{name}.weight_packed"], stored[f"{name}.weight_scale"]
            codes = (words[:, :, None] >> torch.arange(0, 32, 4)) & 15
            module.weight.data = (codes.flatten(1) - 8) * scales.repeat_interleave(32, dim=1)
    for theirs in (read, plain):
        with torch.inference_mode():
            expected = torch.log_softmax(theirs(torch.tensor([text])).logits[0], dim=-1)
        torch.testing.assert_close(ours, expected, atol=2e-4, rtol=0)


def test_the_same_texts_give_the_same_folder(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_calibrated(source, tmp_path / name, Calibration(4, 32), texts())
    one, two = ((tmp_path / name / "model-00001-of-00001.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_experts_that_few_tokens_chose_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    folder = save_safetensors(tiny("qwen3_moe"), tmp_path / "source")
    all_seen = write_calibrated(folder, tmp_path / "all", Calibration(4, 16), texts(250))
    few = write_calibrated(folder, tmp_path / "few", Calibration(4, 16), texts(250, 1))
    matrices = 2 * (4 + 6 * 3)
    assert all_seen.matrices == few.matrices == matrices
    assert all_seen.nearest < few.nearest <= 2 * 6 * 3
    load_model(tmp_path / "few", dtype="float32", device="cpu", weights="stored")


@pytest.mark.parametrize("row", ["falcon_h1", "lfm2-biased", "deepseek_v2", "granitemoehybrid", "phi"])
def test_families_load_again(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    folder = save_safetensors(model, tmp_path / "source")
    written = write_calibrated(folder, tmp_path / "small", Calibration(8, 32), texts(250, 4))
    assert written.nearest < written.matrices
    text = texts(250)[0]
    near = log_probabilities(tmp_path / "small", text), log_probabilities(folder, text)
    assert float((near[0] - near[1]).abs().mean()) < 0.1


def test_the_weights_of_one_layer_are_read_at_a_time(source: Path, tmp_path: Path) -> None:
    run = LayerRun(source, texts(96, 2))
    with QuantizedFolder(source, tmp_path / "small", 4, 32) as folder:
        observed = run.observed(1, folder.matrices)
    assert {name.split(".")[2] for name in observed.stored} == {"1"}
    for layer in run._model.layers:
        assert all(isinstance(matrix, Tensor) and matrix.is_meta for matrix in (layer.qkv, layer.gate_up, layer.down))


def test_tensors_outside_of_layers_are_not_held(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[list[str]] = []
    close = QuantizedFolder.close
    run = LayerRun(source, texts(96, 2))

    def closed(self: QuantizedFolder) -> int:
        held.append(list(run.files.replaced))
        return close(self)

    monkeypatch.setattr("runtimes.llm.calibration.writer.LayerRun", lambda *_: run)
    monkeypatch.setattr(QuantizedFolder, "close", closed)
    write_calibrated(source, tmp_path / "small", Calibration(4, 32), texts(96, 2))
    assert held == [[]]


def test_a_calibration_that_fails_leaves_no_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: LayerRun, index: int) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(LayerRun, "advance", failing)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="not enough memory"):
        write_calibrated(source, tmp_path / "small", Calibration(4, 32), texts(96, 2))
    assert sorted(tmp_path.iterdir()) == before


def test_a_family_that_the_engine_does_not_compute_is_refused(source: Path, tmp_path: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    with pytest.raises(UnsupportedModel, match="architecture 'mamba' is not supported"):
        write_calibrated(folder, tmp_path / "small", Calibration(4, 32), texts())
    assert not (tmp_path / "small").exists()
    assert open_checkpoint(source).config.num_layers == 2

"""Quantized folders hold the numbers of their formats' specifications, and of the formats' own libraries."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.matrix import GroupQuantized, held, unquantized
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.native.build import NativeUnavailable
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.llm.weights.quantized_files import QuantizedFiles
from runtimes.llm.weights.tensor_files import InvalidCheckpoint, TensorFiles
from tests.runtimes.llm import quantized
from tests.runtimes.llm.native.models import chunk
from tests.runtimes.llm.quantized import LAYOUTS
from tests.runtimes.llm.reference import loaded_bytes, save_safetensors, tiny_llama

NAME = "model.layers.0.mlp.up_proj"
CODES = [one for one in LAYOUTS if one.startswith(("gptq", "awq", "packed", "int8", "mlx", "bnb"))]
WHOLE = [name for name in LAYOUTS if name not in CODES or name.endswith("order")]


def files(folder: Path, parts: dict[str, Tensor], how: Any, prefix: str = NAME + ".") -> QuantizedFiles:
    save_file({prefix + part: tensor.contiguous() for part, tensor in parts.items()}, folder / "model.safetensors")
    return QuantizedFiles(TensorFiles(folder), how)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=8)
@given(rows=st.integers(1, 6), columns=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_they_are_the_same_numbers(
    tmp_path_factory: pytest.TempPathFactory, layout: str, rows: int, columns: int, seed: int
) -> None:
    how, draw = LAYOUTS[layout]
    shape = (16 * rows, 64 * columns)
    parts, expected = draw(torch.Generator().manual_seed(seed), shape)
    stored = files(tmp_path_factory.getbasetemp(), parts, how)
    weight = stored.weight(f"{NAME}.weight")
    assert tuple(weight.shape) == shape
    assert shape in dict(stored.stored_shapes)
    assert isinstance(weight, GroupQuantized) == (layout not in WHOLE)
    if isinstance(weight, GroupQuantized):
        low, high = {4: (-8, 7), 8: (-128, 127)}[weight.bits]
        assert low <= int(weight.codes.min()) <= int(weight.codes.max()) <= high
        exact = weight.offsets is None
    else:
        exact = layout not in ("gptq-order", "packed-order")
    # Where an offset is added, the sum is rounded once more.
    scale = float(expected.abs().max()) * (0 if exact else 2e-7)
    torch.testing.assert_close(
        unquantized(weight).float(), expected.float(), atol=scale + 1e-9, rtol=0 if exact else 1e-6
    )


@pytest.mark.parametrize("layout", [name for name in CODES if name not in WHOLE])
def test_codes_are_stored_within_the_rounding_of_a_scale(tmp_path: Path, layout: str) -> None:
    how, draw = LAYOUTS[layout]
    parts, expected = draw(torch.Generator().manual_seed(1), (32, 128))
    weight = held(f"{NAME}.weight", files(tmp_path, parts, how).weight(f"{NAME}.weight"), "stored", torch.float32)
    assert isinstance(weight, GroupQuantized)
    step = weight.scales.float().repeat_interleave(weight.group, dim=1)
    assert float(((weight.dequantized() - expected) / step).abs().max()) < (0.08 if weight.bits == 8 else 0.005)


def test_scales_beyond_float16_become_numbers() -> None:
    weight = GroupQuantized(torch.ones(2, 32, dtype=torch.int8), torch.full((2, 1), 1e6), None, 8, 32, torch.float32)
    assert torch.equal(held(f"{NAME}.weight", weight, "stored", torch.bfloat16), torch.full((2, 32), 1e6).bfloat16())


def test_the_experts_of_gpt_oss(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    parts, expected = quantized.fp4(torch.Generator().manual_seed(0), (3 * 8, 64), blocks=True)
    blocks, scales = parts["blocks"].view(3, 8, 2, 16), parts["scales"].view(3, 8, 2)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    stored = files(tmp_path, {"blocks": blocks, "scales": scales}, {"quant_method": "mxfp4"}, prefix=name + "_")
    weight = stored.weight(name)
    assert name in stored
    assert stored.stored_shapes == [((24, 64), True), ((3, 8, 2), False)]
    assert torch.equal(unquantized(weight), expected.view(3, 8, 64))
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    assert torch.equal(unquantized(weight).transpose(1, 2), theirs)


def test_blocks_of_fp8_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    how, draw = {"quant_method": "fp8", "weight_block_size": [16, 32]}, quantized.fp8
    parts, _ = draw(torch.Generator().manual_seed(0), (64, 128), (16, 32))
    theirs = Fp8Dequantize(hf_quantizer=None)._dequantize_one(parts["weight"], parts["weight_scale_inv"], torch.float32)
    assert torch.equal(unquantized(files(tmp_path, parts, how).weight(f"{NAME}.weight")), theirs)


# ── against the formats' own libraries ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (8, True)])
def test_compressed_tensors(tmp_path: Path, bits: int, symmetric: bool) -> None:
    from compressed_tensors import compressors
    from compressed_tensors import quantization as library

    how = library.QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group", group_size=32)
    scheme = library.QuantizationScheme(targets=["Linear"], weights=how)
    random = torch.Generator().manual_seed(0)
    parts = {"weight": torch.randn(32, 96, generator=random), "weight_scale": torch.rand(32, 3, generator=random) / 3}
    zeros = torch.randint(-4, 4, (32, 3), generator=random, dtype=torch.int8)
    parts["weight_zero_point"] = zeros * 0 if symmetric else zeros
    compressor = compressors.BaseCompressor.get_value_from_registry("pack-quantized")
    packed = compressor.compress(parts, scheme)
    theirs = compressor.decompress(packed, scheme)["weight"]
    ours = unquantized(files(tmp_path, packed, {"quant_method": "compressed-tensors"}).weight(f"{NAME}.weight"))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("kind", "nested"), [("nf4", False), ("nf4", True), ("fp4", False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bitsandbytes(tmp_path: Path, kind: str, nested: bool, dtype: torch.dtype) -> None:
    from bitsandbytes import functional as functions

    weight = torch.randn(48, 256, generator=torch.Generator().manual_seed(0)).to(dtype)
    data, state = functions.quantize_4bit(weight, quant_type=kind, compress_statistics=nested)
    parts = {"weight": data} | {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
    ours = unquantized(files(tmp_path, parts, {"quant_method": "bitsandbytes"}).weight(f"{NAME}.weight"))
    theirs = functions.dequantize_4bit(data, state)
    torch.testing.assert_close(ours, theirs, atol=1e-6 if dtype == torch.float32 else 0, rtol=0)


@pytest.mark.parametrize(("bits", "size"), [(2, 32), (3, 64), (4, 64), (5, 32), (6, 32), (8, 128)])
def test_mlx(tmp_path: Path, bits: int, size: int) -> None:
    from mlx import core as library

    weight = library.array(torch.randn(24, 256, generator=torch.Generator().manual_seed(0)).numpy())
    packed = library.quantize(weight, group_size=size, bits=bits)
    theirs = torch.tensor(library.dequantize(*packed, group_size=size, bits=bits).tolist())
    tensors = [torch.tensor(one.tolist(), dtype=torch.float32 if at else torch.uint32) for at, one in enumerate(packed)]
    parts = dict(zip(("weight", "scales", "biases"), tensors, strict=True))
    ours = unquantized(files(tmp_path, parts, {"bits": bits, "group_size": size}).weight(f"{NAME}.weight"))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


# ── whole models ──────────────────────────────────────────────────────────────────────────────────────

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": 0.1}
TOKENS = [(7 * i + i * i // 5) % 90 for i in range(60)]


def saved(layout: str, folder: Path) -> Any:
    """A model of transformers with the numbers of a quantized folder, which is saved in `folder`."""
    how, draw = LAYOUTS[layout]
    model = tiny_llama(**SHAPE)
    save_safetensors(model, folder)
    tensors, random = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parts, weight = draw(random, tuple(module.weight.shape))
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
            module.weight.data = weight.float()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization" if "bits" in how and "quant_method" not in how else "quantization_config"] = how
    (folder / "config.json").write_text(json.dumps(config))
    return model


def log_probabilities(executor: Any) -> Tensor:
    return torch.log_softmax(executor.logits([chunk(0, TOKENS, list(range(4)))], range(len(TOKENS))), dim=-1)


@pytest.mark.parametrize(
    "layout", ["gptq", "gptq-order", "awq", "packed-zeros", "int8", "fp8", "nf4", "bnb-int8", "mlx", "mlx-fp4"]
)
def test_a_quantized_model_is_that_of_transformers(tmp_path: Path, layout: str) -> None:
    model = saved(layout, tmp_path)
    with torch.inference_mode():
        theirs = torch.log_softmax(model(torch.tensor([TOKENS])).logits[0], dim=-1)
    ours = log_probabilities(TorchExecutor(load_model(tmp_path, dtype="float32", device="cpu"), 4, 16))
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
    stored = log_probabilities(
        TorchExecutor(load_model(tmp_path, dtype="float32", device="cpu", weights="stored"), 4, 16)
    )
    following = torch.tensor(TOKENS[1:])[:, None]
    losses = [-float(one[:-1].gather(1, following).double().mean()) for one in (stored, theirs)]
    assert math.exp(losses[0] - losses[1]) == pytest.approx(1, abs=0.002)


@pytest.mark.parametrize("layout", ["gptq", "int8", "mlx-fp4"])
def test_the_native_step_computes_with_the_codes(tmp_path: Path, layout: str) -> None:
    saved(layout, tmp_path)
    model = load_model(tmp_path, dtype="bfloat16", device="cpu", weights="stored")
    assert isinstance(model.layers[0].down, GroupQuantized)
    reference = log_probabilities(TorchExecutor(load_model(tmp_path, dtype="float32", device="cpu"), 4, 16))
    try:
        native = NativeExecutor(model, 4, 16, context_length=64, threads=1)
    except NativeUnavailable:
        pytest.skip("no compiler")
    assert float((log_probabilities(native) - reference).abs().mean()) < 0.1


@pytest.mark.parametrize("layout", ["gptq", "gptq-order", "packed", "packed-order", "fp8"])
def test_memory_is_counted_as_a_folder_is_held(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(layout, tmp_path)
    required, held = loaded_bytes(tmp_path, monkeypatch)
    assert held * 0.95 < required < held * 1.3  # the files' scales and zeros are counted too


# ── files that are not as they should be ──────────────────────────────────────────────────────────────


def _changed(tensor: Tensor, change: str, count: int) -> Tensor | None:
    if change in ("rows", "columns") and tensor.dim():
        return tensor[:count] if change == "rows" else tensor[..., :count]
    if change == "none":
        return None
    return torch.ones(3) if change == "number" else torch.full(tensor.shape, 255, dtype=torch.uint8)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=12)
@given(data=st.data())
def test_parts_of_other_shapes_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, layout: str, data: st.DataObject
) -> None:
    """Any part cut, lacking or of another kind: one line that names the tensor, or a matrix of its own shape."""
    how, draw = LAYOUTS[layout]
    parts, _ = draw(torch.Generator().manual_seed(0), (32, 128))
    part = data.draw(st.sampled_from(sorted(parts)))
    change = data.draw(st.sampled_from(["rows", "columns", "number", "bytes", "none"]))
    changed = _changed(parts.pop(part), change, data.draw(st.integers(0, 40)))
    if changed is not None:
        parts[part] = changed
    if not parts:
        return
    refused = ""
    try:
        stored = files(tmp_path_factory.getbasetemp(), parts, how)
        assert len(stored.stored_shapes) == len(parts)
        unquantized(stored.weight(f"{NAME}.weight"))
    except (InvalidCheckpoint, UnsupportedModel) as error:
        refused = str(error)
    assert not refused or (NAME in refused and "\n" not in refused)


def test_a_shard_that_is_cut_and_a_scale_that_is_missing_are_named(tmp_path: Path) -> None:
    saved("awq", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if name != f"{NAME}.scales"}, path)
    with pytest.raises(UnsupportedModel, match=rf"tensor {NAME}\.scales is not in the safetensors files"):
        load_model(tmp_path, device="cpu")
    save_file(tensors | {f"{NAME}.scales": tensors[f"{NAME}.scales"][:1]}, path)
    with pytest.raises(InvalidCheckpoint, match=rf"parts of tensor {NAME}\.weight do not fit together"):
        load_model(tmp_path, device="cpu")
    save_file(tensors | {f"{NAME}.scales": tensors[f"{NAME}.scales"] * torch.nan}, path)
    with pytest.raises(UnsupportedModel, match=rf"{NAME}\.weight has numbers that are not finite"):
        load_model(tmp_path, device="cpu")


def test_modules_that_are_not_quantized_stay_as_they_are(tmp_path: Path) -> None:
    model = saved("gptq", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    shapes = checkpoint.stored_shapes
    assert ((128, 64), True) in shapes
    assert ((64, 128), True) in shapes
    assert torch.equal(checkpoint.tensor("model.embed_tokens.weight"), model.state_dict()["model.embed_tokens.weight"])

"""Smaller numbers: what they change is measured, on real networks of real frameworks."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
from safetensors.torch import save_file

from runtimes.tensor.configuration.model_config import InstanceGroup, ModelConfig, TensorSpec, Warmup, WarmupInput
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import ModelLoadError, Tensors
from tests.runtimes.tensor.backends.onnx_models import linear
from tests.runtimes.tensor.instances.support import Kind, outputs, running, write

NETWORK = """
import torch
class Model(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
"""
X = np.random.default_rng(3).normal(size=(8, 64)).astype(np.float32)
SPECS: dict[str, Any] = {
    "inputs": (TensorSpec("x", "FP32", (64,)),),
    "outputs": (TensorSpec("y", "FP32", (4,)),),
    "max_batch_size": 8,
}


async def sent(config: ModelConfig, folder: Path) -> tuple[dict[str, Any], Tensors]:
    config = await placement.complete(config, folder)
    async with running(config, folder) as instance:
        return dict(instance.report.quantization), await outputs(instance, {"x": X})


def network(folder: Path) -> Path:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    save_file(module.state_dict(), str(write(folder, NETWORK) / "model.safetensors"))
    return folder


async def compare(config: ModelConfig, folder: Path, quantize: Any, tolerance: float) -> None:
    import dataclasses

    _, expected = await sent(config, folder)
    facts, got = await sent(dataclasses.replace(config, quantize=quantize), folder)
    assert facts["to"] == quantize
    assert 0 < facts["mean_abs_error"] <= facts["max_abs_error"] < tolerance
    assert facts["latency_ratio"] > 0
    assert not np.array_equal(got["y"], expected["y"])
    np.testing.assert_allclose(got["y"], expected["y"], atol=2 * tolerance)


@pytest.mark.parametrize(("quantize", "tolerance"), [("int8", 5.0), ("fp16", 1.0)])
async def test_onnx(tmp_path: Path, quantize: str, tolerance: float) -> None:
    await compare(ModelConfig("model", "onnx"), linear(tmp_path), quantize, tolerance)


@pytest.mark.parametrize("kind", ["thread", pytest.param("process", marks=pytest.mark.processes)])
@pytest.mark.parametrize(("quantize", "tolerance"), [("int8", 0.2), ("bf16", 0.1)])
async def test_pytorch(tmp_path: Path, kind: Kind, quantize: str, tolerance: float) -> None:
    config = ModelConfig(
        "model",
        "torch",
        instance_groups=(InstanceGroup(placement=kind),),
        default_model_filename="model.safetensors",
        **SPECS,
    )
    await compare(config, network(tmp_path), quantize, tolerance)


async def test_the_log_reports_the_quantization(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await sent(ModelConfig("model", "onnx", quantize="int8"), linear(tmp_path))
    assert "model_0_0 is quantized: to int8, max_abs_error " in caplog.text


async def test_only_some_operators(tmp_path: Path) -> None:
    folder = linear(tmp_path)
    _, expected = await sent(ModelConfig("model", "onnx"), folder)
    config = ModelConfig("model", "onnx", quantize="int8", parameters={"quantize_ops": "Conv, LSTM"})
    facts, got = await sent(config, folder)
    assert facts["max_abs_error"] == 0
    np.testing.assert_array_equal(got["y"], expected["y"])


async def test_the_error_is_measured_on_the_first_warm_up(tmp_path: Path) -> None:
    warmup = Warmup("zeros", 2, inputs=(WarmupInput("x", "FP32", (64,)),))
    facts, _ = await sent(ModelConfig("model", "onnx", quantize="int8", warmup=(warmup,)), linear(tmp_path))
    assert facts["max_abs_error"] == 0  # zeros are zeros in any number


@pytest.mark.processes
async def test_a_model_that_cannot_be_measured_is_served_with_a_warning(tmp_path: Path) -> None:
    forward = "    def forward(self, x):\n        return super().forward(x[:, 1:] if x.abs().max() < 50 else x)\n"
    network(tmp_path)
    write(tmp_path, NETWORK + forward)
    config = ModelConfig("model", "torch", quantize="int8", default_model_filename="model.safetensors", **SPECS)
    async with running(config, tmp_path) as instance:
        facts = instance.report.quantization
        assert "the original fails on the sample, write a warm-up: RuntimeError" in str(facts["unmeasured"])
        assert (await outputs(instance, {"x": X * 100}))["y"].shape == (8, 4)


@pytest.mark.parametrize(
    ("backend", "quantize", "message"),
    [
        ("onnx", "bf16", "few operators in BF16: `quantize` here is int8 or fp16"),
        ("openvino", "int8", "quantizes to int8 ahead of time"),
        ("torch", "int8", "is for a plain module with its weights; this one is scripted"),
    ],
)
async def test_impossible_quantizations_are_refused(tmp_path: Path, backend: str, quantize: Any, message: str) -> None:
    import warnings

    folder = linear(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(torch.nn.Linear(64, 4)).save(str(folder / "model.pt"))
    with pytest.raises(ModelLoadError, match=message):
        await placement.start(ModelConfig("model", backend, quantize=quantize, **SPECS), folder)


async def test_openvino_takes_the_precision_where_the_cpu_has_it(tmp_path: Path) -> None:
    folder = linear(tmp_path)
    facts, _ = await sent(ModelConfig("model", "openvino", quantize="bf16"), folder)
    assert facts["to"] == "bf16"
    able = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert (facts["max_abs_error"] > 0) == able

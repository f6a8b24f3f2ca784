"""ONNX models with smaller numbers, made when they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from adapters.process import TemporaryFolder
from runtimes.tensor.backends.base import ModelLoadError
from runtimes.tensor.configuration.model_config import ModelConfig


def quantized(config: ModelConfig, path: Path) -> bytes:
    """The model converted to the datatype of `quantize`. Its inputs and outputs stay unchanged.

    int8: weights are converted once, activations at each call (parameter `quantize_ops`: only these operators).
    """
    if config.quantize == "int8":
        return _int8(path, _operators(config))
    if config.quantize == "fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half: Any = convert_float_to_float16(onnx.load(path), keep_io_types=True)
        data: bytes = half.SerializeToString()
        return data
    raise ModelLoadError(f"onnxruntime has few operators in {config.quantize.upper()}: `quantize` here is int8 or fp16")


def _operators(config: ModelConfig) -> list[str] | None:
    written = config.parameters.get("quantize_ops", "")
    return [name.strip() for name in written.split(",") if name.strip()] or None


def _int8(path: Path, operators: list[str] | None) -> bytes:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryFolder() as folder:
        out = Path(folder) / "model.onnx"
        quantize_dynamic(path, out, op_types_to_quantize=operators, weight_type=QuantType.QInt8)
        return out.read_bytes()

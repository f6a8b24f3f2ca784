"""PyTorch models: TorchScript, torch.export, or a plain module with its weights.

A module is the class `Model` of `model.py`, or the class that the parameter `class` names; its weights are safetensors
or a state dict, which is read without running anything. Inputs go to `forward` by name, or in order where it has other
names (`INPUT__0`, `INPUT__1` …, as Triton counts them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from runtimes.tensor.backends.base import Array, Device, Model, ModelFailed, Tensors
from runtimes.tensor.backends.declared import TORCH_FILENAMES, declared, is_declared
from runtimes.tensor.backends.files import forget, model_file, output_names
from runtimes.tensor.backends.signature import completed
from runtimes.tensor.backends.torch_files import TYPES, exported, exported_signature, loaded
from runtimes.tensor.configuration.model_config import ModelConfig

_FLOATS: Final = frozenset({"FP16", "FP32", "FP64", "BF16"})


class TorchBackend:
    """A compiled model computes outside of Python's lock; a module of Python code computes faster in a process."""

    name = "torch"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        path = model_file(config, folder, *TORCH_FILENAMES)
        if is_declared(self.name, config, folder):
            return declared(self.name, config)
        return completed(config, *exported_signature(exported(path)))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        return TorchModel(config, folder, device)


class TorchModel:
    def __init__(self, config: ModelConfig, folder: Path, device: Device) -> None:
        if device.threads:
            torch.set_num_threads(device.threads)  # of this thread
        self._device = torch.device("cpu" if device.gpu is None else f"cuda:{device.gpu}")
        self._module, self._call = loaded(config, folder, self._device)
        self._outputs = output_names(config)
        self._halves = {spec.name for spec in config.inputs if spec.datatype == "BF16"}
        self._computes = TYPES[config.quantize.upper()] if config.quantize in ("fp16", "bf16") else None
        self._floats = {spec.name: TYPES[spec.datatype] for spec in config.outputs if spec.datatype in _FLOATS}

    def infer(self, inputs: Tensors) -> Tensors:
        with torch.inference_mode():
            return self._arrays(self._call({name: self._tensor(name, array) for name, array in inputs.items()}))

    def close(self) -> None:
        forget(self._module)
        del self._call

    def _tensor(self, name: str, array: Array) -> torch.Tensor:
        # The model must not write to the server's buffers.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if name in self._halves:
            tensor = tensor.view(torch.bfloat16)
        if self._computes is not None and tensor.is_floating_point():
            return tensor.to(self._device, self._computes)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)

    def _arrays(self, answer: Any) -> dict[str, Array]:
        if isinstance(answer, torch.Tensor):
            answer = (answer,)
        if isinstance(answer, Mapping):
            named = {name: answer[name] for name in self._outputs if name in answer}
        elif isinstance(answer, Sequence):
            named = dict(zip(self._outputs, answer, strict=False))
        else:
            raise ModelFailed(f"the model returned a {type(answer).__name__}, not tensors")
        return {name: self._array(name, value) for name, value in named.items()}

    def _array(self, name: str, value: Any) -> Array:
        if not isinstance(value, torch.Tensor):
            raise ModelFailed(f"output `{name}` is a {type(value).__name__}, not a tensor")
        if self._computes is not None and name in self._floats:
            value = value.to(self._floats[name])
        value = value.cpu().resolve_conj().resolve_neg()
        array: Array = (value.view(torch.uint16) if value.dtype is torch.bfloat16 else value).numpy()
        return array


BACKEND = TorchBackend()

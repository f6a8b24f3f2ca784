"""Archives of TorchServe, unpacked: a handler, which gets a list of requests and returns a list of answers.

A request is a body of any kind (`data`), with its headers as JSON (`request`). An answer is a
body, with its status and headers as JSON (`response`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.interfaces import Device, Model, ModelLoadError
from runtimes.tensor.torchserve_api.loading import MANIFEST, handler_of

INPUTS = (TensorSpec("data", "BYTES", (1,)), TensorSpec("request", "BYTES", (1,), optional=True))
OUTPUTS = (TensorSpec("data", "BYTES", (1,)), TensorSpec("response", "BYTES", (1,)))


class TorchserveBackend:
    name = "torchserve"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        if not (folder / MANIFEST).is_file():
            raise ModelLoadError(f"there is no {MANIFEST} in the version's folder")
        if (config.inputs and config.inputs != INPUTS) or (config.outputs and config.outputs != OUTPUTS):
            raise ModelLoadError("the tensors of a handler are `data` and `request`: leave inputs and outputs out")
        return replace(config, inputs=INPUTS, outputs=OUTPUTS, max_batch_size=max(1, config.max_batch_size))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` converts weights that the runtime reads: a handler reads its own")
        model: Any = handler_of(folder, config.name, config.max_batch_size, _settings(config, folder), device)
        made: Model = model
        return made


def _settings(config: ModelConfig, folder: Path) -> dict[str, Any]:
    """The model's own configuration, which its handler may read."""
    file = config.parameters.get("model_config", "")
    settings = yaml.safe_load((folder / file).read_text()) if file else {}
    return settings if isinstance(settings, dict) else {}


BACKEND = TorchserveBackend()

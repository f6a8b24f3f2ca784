"""Pipelines of Hugging Face: folders of `transformers` with their tokenizer or processor.

The tensors are those of the task (`huggingface.tensors`), which config.json tells unless `parameters` have it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Final

from runtimes.tensor.configuration.hugging_face import BACKEND as NAME
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig
from runtimes.tensor.huggingface.folder import opened
from runtimes.tensor.huggingface.tensors import COUNT, signature
from runtimes.tensor.interfaces import Device, Model, ModelLoadError

MAX_BATCH_SIZE: Final = 8
"""The largest batch, unless the configuration has one."""
for _name in ("torch", "transformers", "PIL"):  # not imported here: that takes seconds, and only copies need them
    if importlib.util.find_spec(_name) is None:
        raise ModuleNotFoundError(f"No module named '{_name}'", name=_name)


class TransformersBackend:
    name = NAME

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        _, raw, settings = opened(config, folder)
        made = signature(raw, settings)
        if (config.inputs and config.inputs != made.inputs) or (config.outputs and config.outputs != made.outputs):
            raise ModelLoadError("the tensors of a pipeline are those of its task: leave inputs and outputs out")
        is_batched = config.batch != "written" or config.max_batch_size > 0
        return replace(
            config,
            inputs=made.inputs,
            outputs=made.outputs,
            max_batch_size=config.max_batch_size or (MAX_BATCH_SIZE if is_batched else 1),
            dynamic_batching=config.dynamic_batching or (DynamicBatching() if is_batched else None),
            counted=dict.fromkeys(made.counted, COUNT),
        )

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is for other backends: set parameters: {dtype: bfloat16}")
        from runtimes.tensor.huggingface.loading import loaded
        from runtimes.tensor.huggingface.model import PipelineModel

        place, raw, settings = opened(config, folder)
        task = loaded(place, folder, raw, settings, device)
        return PipelineModel(task, config.name, is_tried=config.parameters.get("probe") != "false")


BACKEND = TransformersBackend()

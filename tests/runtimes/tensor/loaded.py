"""One model of a folder, loaded as the runtime loads it, and asked without a server."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adapters.tensors import Inference, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.datatypes import datatype_of
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Array
from runtimes.tensor.models.loading import Loader, Parts, read_source
from runtimes.tensor.models.overrides import Override
from runtimes.tensor.models.repository import Repository
from runtimes.tensor.models.served_model import ServedModel
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.statistics import ModelStatistics


def _no_members(model: str, version: str) -> tuple[str, ModelConfig]:
    raise AssertionError(f"{model} is no ensemble's")


async def load(folder: Path, text: str | None = None) -> ServedModel:
    """The only version of a model's folder, loaded; `text` is Triton's JSON in place of the folder's file."""
    return await _load(Repository(folder.parent), folder.name, Override(text, {}) if text else None, 1)


async def load_listed(root: Path, name: str, version: int = 1) -> ServedModel:
    """A version of a model in a repository with the list of another server, loaded."""
    return await _load(Repository(root), name, None, version)


async def _load(repository: Repository, name: str, override: Override | None, version: int) -> ServedModel:
    source = await read_source(repository, name, override)
    loader = Loader(Parts(placement.complete, placement.start, make_scheduler), _no_members, seconds=300, parallel=1)
    return await loader.load(source, version, ModelStatistics())


async def answers(
    served: ServedModel, requests: Sequence[dict[str, Array]], selected: Sequence[tuple[str, ...]] = ()
) -> list[dict[str, Array]]:
    """The answers of requests of numbers that are sent at once. `selected`: the outputs of each; all, if empty."""
    sent = [Inference("m", inputs=[_tensor(name, array) for name, array in one.items()]) for one in requests]
    for inference, names in zip(sent, selected, strict=False):
        inference.outputs = [RequestedOutput(name) for name in names]
    outputs = await asyncio.gather(*[served.scheduler.infer(one) for one in sent])
    return [{one.name: _array(one) for one in each} for each in outputs]


def _tensor(name: str, array: Array) -> Tensor:
    return Tensor(name, datatype_of(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())


def _array(tensor: Tensor) -> Array:
    kinds = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32}
    return np.frombuffer(bytes(tensor.data), kinds[tensor.datatype]).reshape(tensor.shape)


async def end(served: ServedModel) -> None:
    await served.scheduler.aclose()
    for instance in served.instances:
        await instance.aclose()

"""Real models on real threads and in real processes, with one batch at a time."""

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from runtimes.tensor.configuration.model_config import InstanceGroup, ModelConfig, TensorSpec
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Array, Batch, Instance, InstanceLost, Tensors
from runtimes.tensor.texts import expanded

PATIENCE = 300.0
Kind = Literal["thread", "process"]

ADD_SUB = """
class Model:
    def infer(self, inputs):
        one, other = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": one + other, "OUTPUT1": one - other}
"""


def config(
    inputs: Mapping[str, tuple[str, tuple[int, ...]]],
    outputs: Mapping[str, tuple[str, tuple[int, ...]]],
    kind: Kind = "process",
    *,
    backend: str = "python",
    rows: int = 8,
    group: InstanceGroup | None = None,
    **more: Any,
) -> ModelConfig:
    return ModelConfig(
        name="model",
        backend=backend,
        inputs=tuple(TensorSpec(name, *one) for name, one in inputs.items()),
        outputs=tuple(TensorSpec(name, *one) for name, one in outputs.items()),
        max_batch_size=rows,
        instance_groups=(group or InstanceGroup(placement=kind),),
        **more,
    )


def add_sub(kind: Kind, **more: Any) -> ModelConfig:
    ints = ("INT32", (4,))
    return config({"INPUT0": ints, "INPUT1": ints}, {"OUTPUT0": ints, "OUTPUT1": ints}, kind, **more)


def one_to_one(kind: Kind, datatype: str = "FP32", dims: tuple[int, ...] = (2,), **more: Any) -> ModelConfig:
    """A model of `x` to `y`."""
    return config({"x": (datatype, dims)}, {"y": (datatype, dims)}, kind, **more)


def write(folder: Path, source: str, name: str = "model.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(source))
    return folder


@contextlib.asynccontextmanager
async def running(config: ModelConfig, folder: Path) -> AsyncIterator[Instance]:
    """The only copy of a model."""
    [instance] = await placement.start(config, folder)
    try:
        yield instance
    finally:
        await instance.aclose()


async def outcome(instance: Instance, *members: Tensors) -> Tensors | BaseException:
    """The outputs of one batch."""
    answer: asyncio.Future[Tensors | BaseException] = asyncio.get_running_loop().create_future()
    rows = [next(iter(member.values())).shape[0] for member in members]
    instance.start(Batch(members, rows), answer.set_result)
    async with asyncio.timeout(PATIENCE):
        return await answer


async def outputs(instance: Instance, *members: Tensors) -> Tensors:
    got = await outcome(instance, *members)
    if isinstance(got, BaseException):
        raise got
    return {name: expanded(array) for name, array in got.items()}


async def ready(instance: Instance) -> None:
    """Wait until a replacement has taken its place."""
    again = asyncio.Event()
    instance.on_ready = again.set
    async with asyncio.timeout(PATIENCE):
        while not instance.ready:
            await again.wait()


async def at_last(instance: Instance, member: Tensors) -> Tensors:
    """Its outputs, once it is ready: on a busy machine an innocent copy may take longer than it is allowed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await ready(instance)
            got = await outcome(instance, member)
            if not isinstance(got, InstanceLost):
                break
    assert not isinstance(got, BaseException)
    return got


def floats(*rows: list[float]) -> Array:
    return np.array(rows, np.float32)

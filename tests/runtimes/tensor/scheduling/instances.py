"""Copies of a model that compute in virtual time, and requests for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adapters.tensors import Inference, Parameter, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.instances import frames
from runtimes.tensor.instances.frames import Arena
from runtimes.tensor.interfaces import Batch, Done, InstanceLost, LoadReport, ModelFailed, Tensors
from runtimes.tensor.texts import joined

POISON = -1
"""A row that the model cannot stand."""
MURDER = -2
"""A row that kills the copy."""
JOINED = DynamicBatching()


def double(inputs: Tensors) -> Tensors:
    return {"OUT": inputs["IN"] * 2}


class VirtualInstance:
    """Takes `seconds(rows)` for a batch, and a second to come back from the dead."""

    def __init__(
        self,
        name: str = "copy-0",
        seconds: Callable[[int], float] = lambda rows: 0.010,
        compute: Callable[[Tensors], Tensors] = double,
    ) -> None:
        self.name = name
        self.ready = True
        self.on_ready: Callable[[], None] = lambda: None
        self.on_stuck: Callable[[float], None] = lambda seconds: None
        self.report = LoadReport()
        self.restarts = 0
        self.batches: list[list[int]] = []
        """Rows of each member, of each batch."""
        self.values: list[list[Any]] = []
        """The first element of each row, of each batch."""
        self.hangs = False
        self._seconds = seconds
        self._compute = compute
        self._busy: tuple[Done, asyncio.TimerHandle | None] | None = None

    @property
    def busy(self) -> bool:
        return self._busy is not None

    def start(self, batch: Batch, done: Done) -> None:
        assert self._busy is None, "one batch at a time"
        if not self.ready:
            done(InstanceLost("it is being replaced"))
            return
        self.batches.append(list(batch.rows))
        inputs = {name: joined([m[name] for m in batch.members]) for name in batch.members[0]}
        first = inputs["IN"].reshape(len(inputs["IN"]), -1)
        self.values.append(first[:, 0].tolist() if first.size else [])
        timer = None
        if not self.hangs:
            seconds = self._seconds(sum(batch.rows))
            timer = asyncio.get_running_loop().call_later(seconds, self._finish, inputs)
        self._busy = (done, timer)

    def stream(self, inputs: Tensors, response: Any, done: Any) -> Any:
        raise AssertionError("this model is not decoupled")

    async def aclose(self) -> None:
        self.die(returns=False)

    def die(self, returns: bool = True) -> None:
        self.ready = False
        if self._busy is not None:
            done, timer = self._busy
            self._busy = None
            if timer is not None:
                timer.cancel()
            done(InstanceLost("killed"))
        if returns:
            asyncio.get_running_loop().call_later(1.0, self.return_)

    def return_(self) -> None:
        self.hangs = False
        self.ready = True
        self.restarts += 1
        self.on_ready()

    def _finish(self, inputs: Tensors) -> None:
        assert self._busy is not None
        values = inputs["IN"]
        if (values == MURDER).any():
            self.die()
            return
        done = self._busy[0]
        self._busy = None
        if (values == POISON).any():
            done(ModelFailed("a row is poisoned"))
            return
        try:
            outputs = self._compute(inputs)
        except Exception as error:
            done(ModelFailed(repr(error)))
        else:
            done(outputs)


def model(
    max_batch_size: int = 8,
    dims: Sequence[int] = (2,),
    batching: DynamicBatching | None = JOINED,
    **fields: Any,
) -> ModelConfig:
    """`IN` in, `OUT` out, both INT32 of the same shape."""
    return ModelConfig(
        name="double",
        backend="test",
        inputs=(TensorSpec("IN", "INT32", tuple(dims)),),
        outputs=(TensorSpec("OUT", "INT32", tuple(dims)),),
        max_batch_size=max_batch_size,
        dynamic_batching=batching,
        **fields,
    )


def request(
    *values: int,
    width: int = 2,
    parameters: Mapping[str, Parameter] | None = None,
    outputs: Sequence[str] = (),
) -> Inference:
    """A row of each value, so many times."""
    array = np.repeat(np.array(values, "<i4")[:, None], width, axis=1)
    return Inference(
        "double",
        parameters=parameters or {},
        inputs=[Tensor("IN", "INT32", array.shape, array.tobytes())],
        outputs=[RequestedOutput(name) for name in outputs],
    )


def values_of(outputs: list[Tensor]) -> list[int]:
    """The first element of each row of `OUT`."""
    (output,) = outputs
    assert output.name == "OUT"
    array = np.frombuffer(output.data, "<i4").reshape(output.shape)
    assert (array == array[:, :1]).all()
    return [int(value) for value in array[:, 0]]


def crossed(members: Sequence[Tensors], kind: int = frames.INFER) -> Tensors:
    """What the process of a model receives, or what it returns."""
    arena = Arena()
    try:
        packet = frames.parse(frames.packed(frames.tensors_frame(kind, 1, members), arena), arena)
        return frames.tensors_of(frames.owned(packet, arena))
    finally:
        arena.close()

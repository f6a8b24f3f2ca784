"""The response to a request that was cut into parts."""

from __future__ import annotations

import asyncio
from typing import Any

from adapters.errors import BackendError
from adapters.tensors import Tensor
from runtimes.tensor.off_loop import LARGE
from runtimes.tensor.scheduling.pending import Execution, Pending
from runtimes.tensor.scheduling.unfinished import UnfinishedTensor, outputs_of, pieces_of


class Joint(asyncio.Future[list[Tensor]]):
    """The future of a request that was cut. It ends with its last part, or with the first part that fails; the other
    parts are then withdrawn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: list[Pending]) -> None:
        super().__init__(loop=loop)
        self._parts = parts
        self._open = len(parts)
        for part in parts:
            part.add_done_callback(self._part_done)

    @property
    def arrived(self) -> float:
        return self._parts[0].arrived

    @property
    def execution(self) -> Execution | None:
        """The batch of its last part."""
        return self._parts[-1].execution

    @property
    def device_seconds(self) -> float:
        """The device time of all parts."""
        return sum(part.device_seconds for part in self._parts)

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self._withdraw()
        return True

    def _part_done(self, part: asyncio.Future[list[Tensor]]) -> None:
        self._open -= 1
        error = None if part.cancelled() else part.exception()
        if self.done():
            return
        if error is not None:
            self.set_exception(error)
            self._withdraw()
        elif not self._open:
            try:
                columns = zip(*[p.result() for p in self._parts], strict=True)
                self.set_result(outputs_of([_join(column) for column in columns]))
            except BackendError as uneven:
                self.set_exception(uneven)

    def _withdraw(self) -> None:
        for part in self._parts:
            part.cancel()


def _join(pieces: tuple[Tensor, ...]) -> Tensor:
    first = pieces[0]
    if any(piece.shape[1:] != first.shape[1:] for piece in pieces):
        raise BackendError(
            f"Output `{first.name}` has another shape for each part of the request; send fewer rows at a time.",
            code="model_failed",
        )
    shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
    size = sum(len(piece.data) for piece in pieces)
    if size >= LARGE or any(isinstance(piece, UnfinishedTensor) for piece in pieces):
        parts = [part for piece in pieces for part in pieces_of(piece)]
        return UnfinishedTensor(first.name, first.datatype, shape, b"", first.parameters, parts)
    data = b"".join([piece.data for piece in pieces])
    return Tensor(first.name, first.datatype, shape, data, first.parameters)

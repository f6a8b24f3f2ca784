"""The interface between a copy of a model and the thread or process in which it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtimes.tensor.backends.base import Batch, Device, LoadReport, Tensors
from runtimes.tensor.configuration.model_config import ModelConfig

LOAD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class MemberJob:
    """A model of an ensemble, to load into the ensemble's process."""

    steps: tuple[int, ...]
    version: str
    config: ModelConfig
    """Complete."""
    folder: Path
    device: Device
    description: str = ""
    """See `Job`."""


@dataclass(frozen=True, slots=True)
class Job:
    """A model to load, and the resources of its thread or process."""

    name: str
    backend: str
    config: ModelConfig
    folder: Path
    device: Device
    cpus: tuple[int, ...] = ()
    """Cores that the worker is pinned to; all when empty."""
    memory_limit: int = 0
    """Bytes that a process may allocate; 0 for no bound."""
    description: str = ""
    """The configuration in Triton's JSON, for a model that receives requests whole."""
    members: tuple[MemberJob, ...] = ()
    """The models of an ensemble, which is loaded as a whole."""


class Listener(Protocol):
    """Receives the events of a worker, on the loop."""

    def answered(self, result: Tensors | BaseException) -> None:
        """The batch has ended, or the stream has failed."""
        ...

    def responded(self, outputs: Tensors) -> None:
        """One response of the stream. The next one waits for `go_on`."""
        ...

    def streamed(self) -> None:
        """The stream has ended."""
        ...

    def lost(self, reason: str) -> None:
        """The worker has ended without a request to end."""
        ...


class ModelThread(Protocol):
    """Runs one loaded model. One batch or stream at a time."""

    async def load(self) -> LoadReport:
        """Start, and load the model. Raises `ModelLoadError`; after an error or a cancellation nothing remains."""
        ...

    def submit(self, batch: Batch) -> None: ...

    def submit_stream(self, inputs: Tensors) -> None: ...

    def go_on(self) -> None:
        """Permit the next response."""
        ...

    def stop(self) -> None:
        """Cancel the stream; `streamed` follows."""
        ...

    def abandon(self) -> None:
        """Discard the worker in any state. No event follows."""
        ...

    async def aclose(self) -> None:
        """End the worker, after a short time to clean up."""
        ...


MakeWorker = Callable[[Job, Listener], ModelThread]

"""Metadata, statistics and settings of the server and its models, for both wires."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from adapters.errors import InferenceError
from adapters.wire.oip.bodies import EXTENSIONS, Load, ModelMetadata, ServerMetadata, TensorMetadata
from runtimes.tensor.api.log_settings import LogSettings
from runtimes.tensor.api.refusals import not_implemented
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.api.trace import Tracer
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.overrides import Override
from runtimes.tensor.models.records import VersionRecord


class Control:
    """Everything beside inference. Raises `InferenceError` for an invalid request."""

    def __init__(self, manager: ModelManager, memory: SharedMemory, tracer: Tracer, logs: LogSettings) -> None:
        self.manager = manager
        self.memory = memory
        self.tracer = tracer
        self.logs = logs
        self.ready = False
        """Whether the server is ready: the load of every model has ended, and the server is not stopping."""

    def server(self) -> ServerMetadata:
        extensions = [name for name in EXTENSIONS if self.memory.enabled or name != "system_shared_memory"]
        return ServerMetadata("headrace", _version(), extensions)

    def model(self, name: str, version: str = "") -> ModelMetadata:
        number, config = self.manager.table.describe(name, version)
        versions = [number] if version else self.manager.table.versions(name)
        batched = config.max_batch_size > 0
        return ModelMetadata(
            config.name,
            versions,
            config.platform or config.backend,
            [_tensor(spec, batched) for spec in config.inputs],
            [_tensor(spec, batched) for spec in config.outputs],
            parameters=dict(self.manager.table.card(name, version)),
        )

    def config(self, name: str, version: str = "") -> ModelConfig:
        return self.manager.table.describe(name, version)[1]

    def is_decoupled(self, name: str, version: str = "") -> bool:
        """Whether the model is decoupled; False if it is not loaded."""
        try:
            return self.config(name, version).decoupled
        except InferenceError:
            return False

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether the model is ready. Raises `NotFound`."""
        return self.ready and self.manager.table.is_ready(name, version)

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        """The statistics of a version, of all versions of a model, or of all models."""
        number = self.manager.table.describe(name, version)[0] if version else ""
        if name and not version:
            self.manager.table.describe(name)
        return [
            _statistics(model, record)
            for model, record in sorted(self.manager.table.records(), key=lambda one: (one[0], one[1].number))
            if record.usable and name in ("", model) and number in ("", str(record.number))
        ]

    async def load(self, name: str, order: Load) -> None:
        """Load a model. Returns when it is ready. Raises `CallerError` with the reason of a failure."""
        override = None if order.config is None else Override(order.config, order.files)
        await self.manager.load(name, override)


def no_cuda() -> NoReturn:
    """Refuse CUDA shared memory: the CPU cannot access CUDA handles of another process."""
    raise not_implemented("This server has no CUDA shared memory: use system shared memory, or send the tensors.")


def _tensor(spec: TensorSpec, batched: bool) -> TensorMetadata:
    return TensorMetadata(spec.name, spec.datatype, (-1, *spec.dims) if batched else spec.dims)


def _statistics(model: str, record: VersionRecord) -> dict[str, Any]:
    served = record.served
    memory = served.memory_bytes if served is not None else 0
    quantization = next((dict(i.report.quantization) for i in served.instances), None) if served is not None else None
    extra = {"quantization": quantization} if quantization else None
    return record.statistics.report(model, str(record.number), memory, extra)


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0"

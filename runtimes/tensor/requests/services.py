"""The server's side of queries of models: requests to other models, the repository and metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

from adapters.tensors import Inference, Inferred
from runtimes.tensor.models.override import Override
from runtimes.tensor.nested import Calls
from runtimes.tensor.requests.blocked import BlockedCopies
from runtimes.tensor.requests.custom_metrics import CustomMetrics


class RepositoryControl(Protocol):
    """Loads and unloads models. Everything raises `InferenceError`."""

    def is_ready(self, name: str, version: str = "") -> bool: ...

    def lent_slot(self) -> AbstractAsyncContextManager[None]:
        """Lend the slot of a loading model while it waits for the load of another model."""
        ...

    async def load(self, name: str, override: Override | None = None) -> None: ...

    async def unload(self, name: str) -> None: ...


class ModelServices:
    """The services for models. Created before the models, and bound to their server later."""

    def __init__(self) -> None:
        self.metrics = CustomMetrics()
        self.blocked = BlockedCopies()
        self._calls: Calls | None = None
        self._repository: RepositoryControl | None = None

    def bind(self, calls: Calls, repository: RepositoryControl) -> None:
        self._calls = calls
        self._repository = repository

    async def infer(self, inference: Inference, deadline: float) -> Inferred:
        assert self._calls is not None
        return await self._calls.infer(inference, deadline)

    def stream(self, inference: Inference, deadline: float) -> AsyncGenerator[Inferred, None]:
        assert self._calls is not None
        return self._calls.stream(inference, deadline)

    async def answer(self, operation: str, arguments: Mapping[str, Any], *, is_loading: bool = False) -> Any:
        """The value of an operation on the repository. Raises `InferenceError`.

        `is_loading`: the model that requests it is loading itself.
        """
        assert self._repository is not None
        model = str(arguments["model"])
        if operation == "model ready":
            return self._repository.is_ready(model, str(arguments["version"]))
        if operation == "load model":
            async with self._repository.lent_slot() if is_loading else nullcontext():
                await self._repository.load(model, _override(arguments))
        elif operation == "unload model":
            await self._repository.unload(model)
        else:
            raise ValueError(f"there is no operation `{operation}`")
        return None


def _override(arguments: Mapping[str, Any]) -> Override | None:
    """The configuration and files of an order to load a model."""
    config, files = str(arguments.get("config") or ""), arguments.get("files") or {}
    if not config and not files:
        return None
    return Override(config, {name.removeprefix("file:"): bytes(content) for name, content in files.items()})

"""The server's side of queries of models: requests to other models, the repository and metrics.

A copy waits for others while its `execute` calls their models. It is stuck if every copy of the model that it waits for
is stuck too: none of them can take its request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from adapters.tensors import Inference, Inferred
from runtimes.tensor.models.overrides import Override
from runtimes.tensor.models.served_model import Calls
from runtimes.tensor.requests.custom_metrics import CustomMetrics

if TYPE_CHECKING:
    from runtimes.tensor.models.manager import ModelManager


class BlockedCopies:
    """Waits of copies, for all models that receive requests whole. A copy is any object."""

    def __init__(self) -> None:
        self._copies: dict[str, set[object]] = {}
        self._waits_for: dict[object, str] = {}
        """The model that each copy waits for."""

    def add(self, model: str, copy: object) -> None:
        self._copies.setdefault(model, set()).add(copy)

    def remove(self, model: str, copy: object) -> None:
        self.release(copy)
        copies = self._copies.get(model, set())
        copies.discard(copy)
        if not copies:
            self._copies.pop(model, None)

    def block(self, copy: object, model: str) -> bool:
        """Record that a copy waits for a model. False, and nothing is recorded, if it would wait forever."""
        self._waits_for[copy] = model
        if copy in self._stuck():
            del self._waits_for[copy]
            return False
        return True

    def release(self, copy: object) -> None:
        """Record that a copy has its response."""
        self._waits_for.pop(copy, None)

    def _stuck(self) -> set[object]:
        stuck = set(self._waits_for)
        while free := {copy for copy in stuck if not self._is_stuck(self._waits_for[copy], stuck)}:
            stuck -= free
        return stuck

    def _is_stuck(self, model: str, stuck: set[object]) -> bool:
        """Whether no copy of a model can take a request. A model without copies here is another kind, and can."""
        copies = self._copies.get(model, set())
        return bool(copies) and copies <= stuck


class ModelServices:
    """The services for models. Created before the models, and bound to their server later."""

    def __init__(self) -> None:
        self.metrics = CustomMetrics()
        self.blocked = BlockedCopies()
        self._calls: Calls | None = None
        self._repository: ModelManager | None = None

    def bind(self, calls: Calls, repository: ModelManager) -> None:
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

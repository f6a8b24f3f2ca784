"""Models that a request gives a name and a folder of the repository, as the agent of SageMaker's multi-model endpoints
does."""

from __future__ import annotations

import asyncio
from typing import Protocol

from adapters.errors import CallerError, InferenceError, NotFound
from runtimes.tensor.models.records import ModelTable
from runtimes.tensor.models.repository import Repository, RepositoryError

ALREADY_LOADED = "already_loaded"
"""The code of the error for a model that is loaded, or is loading."""


class PlacedLoads(Protocol):
    """The manager, as far as it is used here."""

    table: ModelTable

    def check_explicit(self, order: str) -> None: ...

    def loading(self, name: str) -> asyncio.Task[None] | None: ...

    async def load(self, name: str) -> None: ...

    async def unload(self, name: str) -> None: ...


class PlacedModels:
    """`urls`: by model, the address that the request named it by. Lives on the loop's thread."""

    def __init__(self, repository: Repository, loads: PlacedLoads) -> None:
        self._repository = repository
        self._loads = loads
        self._arriving: set[str] = set()
        self.urls: dict[str, str] = {}

    def is_present(self, name: str) -> bool:
        """Whether a model is loaded, or is loading."""
        return name in self._arriving or self._loads.table.is_usable(name) or self._loads.loading(name) is not None

    async def load(self, name: str, url: str) -> None:
        """Load the model in the folder `url`. Raises `CallerError`, with a code if it is loaded or has no memory.

        It continues if the caller is cancelled.
        """
        self._loads.check_explicit("load")
        if self.is_present(name):
            raise CallerError(f"The model `{name[:256]}` is loaded already.", code=ALREADY_LOADED)
        self._arriving.add(name)
        try:
            await asyncio.to_thread(self._repository.place, name, url)
            self.urls[name] = url
            await self._loads.load(name)
        except RepositoryError as error:
            raise CallerError(f"The model cannot be loaded: {error}.") from None
        except InferenceError:
            self._forget(name)
            raise
        finally:
            self._arriving.discard(name)

    async def unload(self, name: str) -> None:
        """Unload a model. Raises `NotFound` for one that is neither loaded nor loading, and `CallerError`."""
        self._loads.check_explicit("unload")
        if not self.is_present(name):
            raise NotFound(f"The model `{name[:256]}` is not loaded.", param="model_name")
        await self._loads.unload(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._repository.displace(name)
        self.urls.pop(name, None)

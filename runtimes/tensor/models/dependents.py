"""Ensembles that should be in service, and the models that they depend on.

An ensemble is loaded after its models, which are loaded with it if they are not in service. When one of them is loaded
again, the ensemble is checked against it; when one leaves service, so does the ensemble, until the model is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Protocol

from adapters.errors import InferenceError
from config.graph import cycle
from runtimes.tensor.models.loading import SourceError
from runtimes.tensor.models.overrides import Override
from runtimes.tensor.models.records import ModelTable, Source


class Loads(Protocol):
    """Loads and withdraws models."""

    def loading(self, name: str) -> asyncio.Task[None] | None:
        """The load of a model that is in progress."""
        ...

    def bring(self, name: str, override: Override | None = None) -> Awaitable[None]: ...

    def suspend(self, name: str, reason: str) -> Awaitable[None]:
        """Remove a model from service for its own reason."""
        ...


@dataclass(slots=True)
class _Ensemble:
    members: frozenset[str]
    override: Override | None
    state: str | None = None
    """The versions of its members that it was last loaded with; None until these are loaded."""


class Dependents:
    """The ensembles of one repository."""

    def __init__(self, table: ModelTable, loads: Loads) -> None:
        self._table = table
        self._loads = loads
        self._ensembles: dict[str, _Ensemble] = {}

    async def prepare(self, source: Source, override: Override | None) -> None:
        """Load the models of an ensemble; the digest of its source then has their versions.

        A model that cannot be loaded is reported by the load of the ensemble. Raises `SourceError` for a cycle.
        """
        name, config = source.folder.name, source.config.ensemble
        if config is None:
            self._ensembles.pop(name, None)
            return
        members = frozenset(step.model for step in config.steps)
        ensemble = self._ensembles[name] = _Ensemble(members, override)
        if circle := cycle({each: one.members for each, one in self._ensembles.items()}):
            del self._ensembles[name]
            path = " -> ".join((*circle, circle[0]))
            raise SourceError(f"circular dependency between ensembles: {path}")
        await asyncio.gather(*map(self._load, sorted(members)), return_exceptions=True)
        ensemble.state = self._state(members)
        source.digest = f"{source.digest} {ensemble.state}"

    async def _load(self, member: str) -> None:
        loading = self._loads.loading(member)
        if loading is not None:
            await asyncio.wait((loading,))
        elif not self._table.is_usable(member):
            await self._loads.bring(member)

    def forget(self, name: str) -> frozenset[str]:
        """Stop serving an ensemble. Returns its models that no other ensemble depends on."""
        ensemble = self._ensembles.pop(name, None)
        if ensemble is None:
            return frozenset()
        return ensemble.members.difference(*(other.members for other in self._ensembles.values()))

    async def refresh(self, member: str) -> None:
        """Check the ensembles that depend on a model, after its load or its removal from service."""
        for name, ensemble in tuple(self._ensembles.items()):
            # An ensemble that waits for its models will see this one.
            if member in ensemble.members and not (ensemble.state is None and self._loads.loading(name)):
                await self._follow(name, ensemble)

    async def _follow(self, name: str, ensemble: _Ensemble) -> None:
        usable = self._table.is_usable(name)
        if usable and ensemble.state == self._state(ensemble.members):
            return
        missing = sorted(member for member in ensemble.members if not self._table.is_usable(member))
        if missing:
            if usable:
                await self._loads.suspend(name, f"it depends on {', '.join(missing)}, which is not in service")
            return
        try:
            await self._loads.bring(name, ensemble.override)
        except InferenceError as error:
            if self._table.is_usable(name):
                await self._loads.suspend(name, f"it no longer fits its models: {error.message}")

    def _state(self, members: Collection[str]) -> str:
        """A value that changes when a version of any of these models is loaded or leaves service."""
        models = [model for member in sorted(members) if (model := self._table.models.get(member)) is not None]
        return " ".join(f"{model.name}/{record.number}.{record.loads}" for model in models for record in model.usable())

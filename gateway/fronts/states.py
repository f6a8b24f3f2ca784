"""The readiness and the versions of a model, and the reason if it is not ready."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from adapters.errors import (
    BackendError,
    CapacityError,
    InferenceError,
    LimitExceeded,
    ModelNotReady,
    TransportError,
)
from adapters.requests import ModelQuery
from adapters.wire.oip.bodies import IndexEntry
from gateway.auth.keys import Principal
from gateway.fronts import tensors
from gateway.fronts.door import Door
from gateway.fronts.metadata import Metadata
from gateway.request.core import Core
from gateway.telemetry import Record

AT_ONCE = 16
"""Maximum of concurrent queries for one client's index."""
LONGEST = 10.0
"""Seconds that an index waits for the servers of one model."""


class ModelStanding(NamedTuple):
    """The state of a model: READY, LOADING, UNLOADING or UNAVAILABLE; empty if no server reports a state."""

    state: str
    reason: str = ""
    versions: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return self.state == "READY"

    @property
    def reported(self) -> bool:
        """Whether a server reports why the model is not ready."""
        return bool(self.state and self.reason)


async def states(
    core: Core,
    metadata: Metadata,
    principal: Principal,
    headers: Mapping[str, str],
    record: Record,
    model: str,
    version: str,
) -> tuple[ModelStanding, list[str]]:
    """The state of a model and its versions; of a requested version, only that version. Raises `InferenceError`."""
    query = ModelQuery(model=model, version=version, about="ready")
    standing = ModelStanding("READY")
    try:
        await tensors.queried(core, principal, query, headers, record)
    except LimitExceeded:
        raise
    except (CapacityError, TransportError) as error:
        standing = _of(error)
    if version:
        return standing, [version]
    return standing, list(standing.versions) or await _versions(metadata, principal, headers, model)


def _of(error: InferenceError) -> ModelStanding:
    if isinstance(error, ModelNotReady):
        return ModelStanding(error.state, error.reason, error.versions)
    return ModelStanding("", error.message)


async def _versions(metadata: Metadata, principal: Principal, headers: Mapping[str, str], model: str) -> list[str]:
    try:
        described = await metadata.of(principal, model, "", headers)
    except (BackendError, CapacityError, TransportError):
        return []
    return described.versions


async def index(door: Door, principal: Principal, headers: Mapping[str, str]) -> list[IndexEntry]:
    """Each version of each model of tensors that the client may use, with its readiness."""
    places = asyncio.Semaphore(AT_ONCE)

    async def standing(entry: IndexEntry) -> IndexEntry:
        if entry.state != "READY":
            return entry
        model, version = tensors.named(door.core.snapshot, entry.name, entry.version)
        query = ModelQuery(model=model, version=version, about="ready", timeout=LONGEST)
        try:
            async with places:
                await door.core.look_up(principal, query, headers)
        except InferenceError as error:
            if error.kind not in ("capacity", "transport", "backend", "deadline"):
                return entry  # the server answers, but reports no state
            failed = _of(error)
            return IndexEntry(entry.name, entry.version, failed.state or "UNAVAILABLE", failed.reason or error.message)
        return entry

    return list(await asyncio.gather(*map(standing, tensors.listed(door, principal))))

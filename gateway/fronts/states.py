"""Whether a model is ready, and which versions of it there are, for fronts that tell both at once."""

from collections.abc import Mapping

from adapters.errors import BackendError, CapacityError, LimitExceeded, TransportError
from adapters.types import ModelQuery
from gateway.auth.keys import Principal
from gateway.core import Core
from gateway.fronts import tensors
from gateway.fronts.metadata import Metadata
from gateway.telemetry import Record


async def states(
    core: Core,
    metadata: Metadata,
    principal: Principal,
    headers: Mapping[str, str],
    record: Record,
    model: str,
    version: str,
) -> tuple[bool, list[str]]:
    """Of one version that is asked for, that one. Raises `InferenceError`."""
    ready = await _is_ready(core, principal, headers, record, model, version)
    return ready, [version] if version else await _versions(metadata, principal, headers, model)


async def _is_ready(
    core: Core, principal: Principal, headers: Mapping[str, str], record: Record, model: str, version: str
) -> bool:
    query = ModelQuery(model=model, version=version, about="ready")
    try:
        await tensors.asked(core, principal, query, headers, record)
    except LimitExceeded:
        raise
    except (CapacityError, TransportError):
        return False
    return True


async def _versions(metadata: Metadata, principal: Principal, headers: Mapping[str, str], model: str) -> list[str]:
    try:
        known = await metadata.of(principal, model, "", headers)
    except (BackendError, CapacityError, TransportError):
        return []
    return known.versions

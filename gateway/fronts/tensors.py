"""The base of all fronts of tensors: names with versions, lists of models, queries and inferences."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version as installed

from adapters.errors import BackendError
from adapters.requests import ModelQuery
from adapters.wire.oip import bodies as oip_bodies
from gateway.auth.keys import Principal
from gateway.fronts.door import Door
from gateway.request.core import Core
from gateway.request.snapshot import Snapshot
from gateway.telemetry import Record
from policies.routing import rules
from policies.routing.rules import VERSION_SIGN

EXTENSIONS = [name for name in oip_bodies.EXTENSIONS if name not in ("trace", "logging", "system_shared_memory")]
"""The extensions that the gateway forwards. The other extensions are between a server and its operator."""
ELSEWHERE = (
    "A gateway serves many servers. Shared memory, trace and log settings belong to each of them: send this request "
    "to the server itself."
)

ORDERS = (
    "Models are loaded and unloaded on the admin listener: send `POST /v2/repository/models/NAME/load` or `/unload` "
    "there, with the credential of an operator."
)


def named(snapshot: Snapshot, model: str, version: str) -> tuple[str, str]:
    """The name of a model for the rules, and the version to request from its server.

    The rules route a version that the configuration lists. The server also receives the version if it is a number,
    with or without dots, or if the configuration does not list it.
    """
    catalogue = snapshot.catalogue
    if not version:
        resolved = catalogue.find(model)
        if resolved is not None and (resolved.name or VERSION_SIGN not in model):
            return model, resolved.version if resolved.version and _is_number(resolved.version) else ""
        model, _, version = model.rpartition(VERSION_SIGN) if VERSION_SIGN in model else (model, "", "")
        return model, version
    listed = catalogue.find(f"{model}{VERSION_SIGN}{version}")
    if listed is not None and listed.version:
        return f"{model}{VERSION_SIGN}{version}", version if _is_number(version) else ""
    return model, version


def _is_number(version: str) -> bool:
    return version.isascii() and version.replace(".", "").isdigit()


def listed(door: Door, principal: Principal) -> list[oip_bodies.IndexEntry]:
    """Each version of each model of tensors that the client may use, with its state by the health of its endpoints."""
    snapshot = door.core.snapshot
    alive = {name for name, pool in snapshot.pools.items() if any(e.health != "unhealthy" for e in pool.endpoints)}
    entries = []
    for model in door.visible(principal):
        if model.name in snapshot.tensor_models:
            pools = [pool for route in model.routes for pool in route.pools()]
            is_ready = model.pipeline is not None or any(pool in alive for pool in pools)
            state = ("READY", "") if is_ready else _not_ready(snapshot, pools)
            names = [(name, version) for _, name, version in rules.names(model) if version or not model.versions]
            entries += [oip_bodies.IndexEntry(name, version, *state) for name, version in names]
    return entries


def _not_ready(snapshot: Snapshot, pools: Iterable[str]) -> tuple[str, str]:
    """The state of a model without a healthy endpoint, and the reason, by the last health check."""
    endpoints = [endpoint for name in pools if name in snapshot.pools for endpoint in snapshot.pools[name].endpoints]
    reported = next((endpoint.not_ready for endpoint in endpoints if endpoint.not_ready is not None), None)
    return ("UNAVAILABLE", "no endpoint is healthy") if reported is None else (reported.state, reported.reason)


def server_metadata() -> oip_bodies.ServerMetadata:
    """The metadata of the gateway itself."""
    return oip_bodies.ServerMetadata("headrace", installed("headrace"), EXTENSIONS)


async def queried(
    core: Core, principal: Principal, query: ModelQuery, headers: Mapping[str, str], record: Record
) -> bytes:
    """The response of a model's server to a query. Raises `InferenceError`."""
    answer = await core.handle(principal, query, headers, record)
    if answer.body is None:
        await answer.aclose()
        raise BackendError("The upstream answered a metadata request with a stream.", code="upstream_bad_response")
    return answer.body

"""TorchServe's management API: the versions of a model, their workers, orders, and the errors of failures."""

from typing import NoReturn
from urllib.parse import urlencode

import msgspec

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, InferenceError, UpstreamTimeout
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import Headers, encode_fields
from adapters.paths import segment
from adapters.requests import ModelOrder, ModelQuery, ModelRequest
from adapters.upstreams import failed_status
from adapters.upstreams.apps.calls import by_status
from adapters.upstreams.declared_tensors import json_answer, ready_answer
from adapters.upstreams.failed_status import (
    CALLER_STATUS,
    credential_refused,
    error_body,
    unknown_model,
    upstream_error,
)
from adapters.wire import failure_text
from adapters.wire import torchserve as wire
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import IndexEntry

MAX_ANSWER = 4 * 1024 * 1024
_FIELDS = encode_fields([("user-agent", "headrace")])


class ManagedModels:
    """The management API of one endpoint. `model` is the endpoint's own name of the model."""

    def __init__(self, client: Client, model: str | None) -> None:
        self._client = client
        self._model = model

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def ready(self, query: ModelQuery, call: Call) -> Answer:
        """Report a model as ready if it has a ready worker. Raises `ModelNotReady`."""
        try:
            entries = await self.entries(query, call)
        except InferenceError as error:
            if error.code != "upstream_model_not_found" and error.kind != "caller":
                raise
            raise failed_status.unavailable(query, "its server has no such model registered") from None
        if not any(entry.state == "READY" for entry in entries):
            raise failed_status.not_ready(query, entries)
        return ready_answer(query)

    async def entries(self, request: ModelRequest, call: Call) -> list[IndexEntry]:
        """Return an entry for each registered version, with the state of its workers."""
        versions = await self._versions(request, request.version, call)
        return [IndexEntry(request.model, version.name, *_state_of(version)) for version in versions]

    async def versions(self, query: ModelQuery, call: Call) -> list[str]:
        """Return the names of all registered versions."""
        return [version.name for version in await self._versions(query, query.version or "all", call)]

    async def described(self, query: ModelQuery, call: Call) -> Answer:
        """Return TorchServe's description of a model, as the model's configuration."""
        description = await self._describe(query, query.version or "all", call)
        body = {"name": query.model, "platform": "torchserve", "versions": msgspec.Raw(description)}
        return json_answer(oip_bodies.encode(body))

    async def _versions(self, query: ModelRequest, version: str, call: Call) -> list[wire.VersionWorkers]:
        return wire.decode_described(await self._describe(query, version, call))

    async def _describe(self, query: ModelRequest, version: str, call: Call) -> bytes:
        response = await self._send(b"GET", self._path(query, version), call)
        body = await response.read(MAX_ANSWER)
        if response.status != 200:
            failure = judged(query, response.status, response.headers, body)
            raise failure or upstream_error(response.status, response.headers)
        return body

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────

    async def order(self, order: ModelOrder, call: Call) -> Answer:
        """Execute an order. Returns after the workers have started."""
        if order.order == "load":
            load = oip_bodies.decode_load(order.body)
            if load.files:
                raise CallerError("TorchServe takes no files: give the archive's `url` in `config`.")
            await self._load(order, wire.decode_registration(load.config), call)
        else:
            await self._unload(order, call)
        return json_answer(b"{}")

    async def _load(self, order: ModelOrder, registration: wire.Registration, call: Call) -> None:
        """Register a model, or scale a registered model to the requested workers."""
        name = self._model or order.model
        query = urlencode({"url": f"{name}.mar", "initial_workers": 1, **registration.register, "model_name": name})
        response = await self._send(b"POST", f"/models?{query}&synchronous=true", call)
        if response.status == 409:
            response.close()
            await self._scale(order, registration, call)
        else:
            await self._done(order, response)
        if registration.default:
            await self._done(
                order, await self._send(b"PUT", f"{self._path(order, registration.default)}/set-default", call)
            )

    async def _scale(self, order: ModelOrder, registration: wire.Registration, call: Call) -> None:
        query = urlencode(
            {"min_worker": registration.workers, "max_worker": registration.workers, "synchronous": "true"}
        )
        path = self._path(order, registration.default)
        await self._done(order, await self._send(b"PUT", f"{path}?{query}", call))

    async def _unload(self, order: ModelOrder, call: Call) -> None:
        """Unregister all versions, the default version last: TorchServe rejects it while other versions exist."""
        default = {version.name for version in await self._versions(order, "", call)}
        every = [version.name for version in await self._versions(order, "all", call)]
        for version in sorted(every, key=lambda name: name in default):
            await self._done(order, await self._send(b"DELETE", self._path(order, version), call))

    async def _done(self, order: ModelOrder, response: ClientResponse) -> None:
        if response.status not in (200, 202):
            await refuse_order(order, response)
        await response.read(MAX_ANSWER)

    def _path(self, request: ModelRequest, version: str) -> str:
        path = f"/models/{segment(self._model or request.model)}"
        return f"{path}/{segment(version)}" if version else path

    async def _send(self, method: bytes, path: str, call: Call) -> ClientResponse:
        return await self._client.request(method, path.encode(), _FIELDS, b"", call.deadline)


def _state_of(version: wire.VersionWorkers) -> tuple[str, str]:
    """Return a version's state and reason. TorchServe does not report why a model fails to load; its log does."""
    if version.ready:
        return "READY", ""
    if version.busy:
        return "UNAVAILABLE", f"none of its {version.busy} workers is ready: {version.status}"
    return "UNAVAILABLE", "it has no worker"


# Typed errors for TorchServe's failures, by the `type` in their body, then by their status.


def judged(request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError | None:
    """Return the typed error of a response; None if a handler chose the status."""
    decoded = wire.decode_error(body)
    return by_kind(request, decoded.type, decoded.message) or by_status(request, status, headers, body)


def by_kind(request: ModelRequest, kind: str, message: str = "") -> InferenceError | None:
    """Return the typed error of a Java class; None for a class that only repeats the status."""
    if kind == "InvalidKeyException":  # with a 400
        return credential_refused()
    if kind == "ModelNotFoundException":
        return unknown_model()
    if kind == "ModelVersionNotFoundException":
        return failed_status.no_such_version(request) if request.version else unknown_model()
    if kind == "RequestTimeoutException":
        return UpstreamTimeout("The upstream timed out.")
    if kind == "InternalServerException":  # both a handler's failure and a full queue are a 503
        return failure_text.model_failure(message)
    return CallerError("The upstream refused the request.") if kind == "BadRequestException" else None


async def refuse_order(request: ModelRequest, response: ClientResponse) -> NoReturn:
    """Raise the typed error of a rejected order, with the management API's message for the operator."""
    decoded = wire.decode_error(await error_body(response))
    if decoded.type == "InvalidKeyException":
        raise credential_refused()
    if response.status in CALLER_STATUS or response.status in (403, 404):
        raise CallerError(decoded.message or "The upstream refused the order.")
    raise upstream_error(response.status, response.headers)

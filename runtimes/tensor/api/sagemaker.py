"""The paths by which SageMaker's agent loads and unloads models of a multi-model endpoint.

POST   /models          {"model_name": NAME, "url": FOLDER}; 409 if it is loaded, 507 if it has no memory
DELETE /models/MODEL    404 if it is not loaded
"""

from __future__ import annotations

import json
from typing import Final

from adapters import statuses
from adapters.errors import CallerError, InferenceError, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.oip import bodies as oip_bodies
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.refusals import JSON
from runtimes.tensor.api.restrictions import PathMatch
from runtimes.tensor.models.placed import ALREADY_LOADED
from runtimes.tensor.models.residency import INSUFFICIENT_MEMORY

STATUSES: Final = {ALREADY_LOADED: 409, INSUFFICIENT_MEMORY: 507}
"""The statuses of the contract, by the code of an error."""
_TYPES: Final = {
    404: "ModelNotFoundException", 409: "ConflictStatusException", 507: "InsufficientStorageException",
}  # fmt: skip


class SagemakerDoor:
    """The handlers of these paths."""

    def __init__(self, control: Control) -> None:
        self._placed = control.manager.placed

    async def load(self, request: Request, route: PathMatch) -> Response:
        """200 when the model is in service, with the status of its load otherwise."""
        try:
            order = oip_bodies.decode_object(await request.read())
            name, url = order.get("model_name"), order.get("url")
            if not isinstance(name, str) or not isinstance(url, str):
                raise CallerError("The body must have `model_name` and `url`, both of them text.")
            await self._placed.load(name, url)
        except InferenceError as error:
            return refused(error)
        return _done(f"Model {name} loaded")

    async def unload(self, request: Request, route: PathMatch) -> Response:
        """200 when the model is out of service. Its requests finish in the background."""
        try:
            await self._placed.unload(route.about)
        except InferenceError as error:
            return refused(error)
        return _done(f"Model {route.about} unloaded")


def check_loaded(control: Control, name: str) -> None:
    """Raise `NotFound` for a model that is not loaded, where only requests load models."""
    manager = control.manager
    if manager.options.mode == "explicit" and not manager.placed.is_present(name):
        raise NotFound(f"The model `{name[:256]}` is not loaded.", param="model_name")


def refused(error: InferenceError) -> Response:
    """An error in the form of multi-model containers."""
    status = STATUSES.get(error.code) or statuses.own_http_status(error)
    kind = _TYPES.get(status, "BadRequestException" if status < 500 else "InternalServerException")
    body = json.dumps({"code": status, "type": kind, "message": error.message}, indent=2)
    return Response(status, [JSON], f"{body}\n".encode())


def _done(status: str) -> Response:
    return Response(200, [JSON], json.dumps({"status": status}).encode())

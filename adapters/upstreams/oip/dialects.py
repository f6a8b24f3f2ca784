"""Dialects of the Open Inference Protocol: the differences of each server from Triton, one line each, and orders."""

from typing import NamedTuple

import msgspec

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, Unsupported
from adapters.http1.client import Client
from adapters.paths import segment
from adapters.requests import ModelOrder
from adapters.types import OIP_JSON
from adapters.upstreams import failed_status
from adapters.upstreams.failed_status import MAX_ERROR_BODY
from adapters.upstreams.oip.responses import refuse
from adapters.wire import decoding
from config.schema.protocols.tensors import OipServer


def listed_state(body: bytes, model: str) -> bool | None:
    """Whether a version of a model is ready; None if it is not served. Raises `BackendError`."""
    decoded = decoding.decode(_config, body).get(model)
    return None if decoded is None else any(version.state == "AVAILABLE" for version in decoded.model_version_status)


class Dialect(NamedTuple):
    """The features of one kind of server."""

    binary: bool = True
    """Supports tensors in binary form over HTTP."""
    extras: bool = True
    """Supports prompts (`generate`), raw bodies and compressed bodies over HTTP."""
    streams: bool = True
    """Supports streams of responses over HTTP, for decoupled models."""
    needs_id: bool = False
    """Fails at a request without an id."""
    versions: bool = True
    """Has versions of models. The gateway rejects a version for other servers: some of them accept any version."""
    name_first: bool = False
    """Over gRPC, the first field of an order is the model's name instead of the repository's, and the success of an
    order is reported as an internal error."""
    typed: bool = False
    """Over gRPC, responses may hold typed contents, which not every client supports: they are converted to raw."""
    blunt: bool = False
    """Fails with 500 at tensors that do not fit the model; the gateway then checks them against the metadata."""
    reloads: bool = False
    """Loads the models of its configuration file when it is ordered to reload the file; it unloads no model."""
    graphs: bool = False
    """Over gRPC, only graphs stream; a stream to any other model fails with an unknown model."""
    explains: bool = False
    """Explains answers, as the tensor runtime does: `POST /v2/models/NAME/explain`."""
    routed_by: str = ""
    """The header with the model's name, for a router in front of the servers."""


TRITON = Dialect(explains=True)
_KSERVE = Dialect(extras=False, streams=False, needs_id=True, versions=False, name_first=True, typed=True, blunt=True)
_MLSERVER = Dialect(binary=False, extras=False, blunt=True)
_BY_NAME: dict[OipServer, Dialect] = {
    "triton": TRITON,
    "kserve": _KSERVE,
    "mlserver": _MLSERVER,
    "seldon": _MLSERVER._replace(routed_by="seldon-model"),
    "openvino": Dialect(extras=False, streams=False, reloads=True, graphs=True),
}
PIPELINE = ".pipeline"
"""The suffix of a pipeline's name that Seldon's router requires and the servers behind it do not accept."""


def dialect_of(server: OipServer | None) -> Dialect:
    """Return the dialect of a server; Triton's if none is configured."""
    return _BY_NAME[server] if server is not None else TRITON


# Orders to servers of the Open Inference Protocol over HTTP: the repository extension, and OpenVINO's reload.


async def give(client: Client, base: str, model: str, order: ModelOrder, fields: bytes, call: Call) -> Answer:
    """Load or unload a model: `POST /v2/repository/models/NAME/load` or `/unload`."""
    target = f"{base}/v2/repository/models/{segment(model)}/{order.order}".encode()
    response = await client.request(b"POST", target, fields, order.body or b"{}", call.deadline)
    body = await response.read(MAX_ERROR_BODY)
    if response.status != 200:
        await refuse(order, response, body)
    return Answer(content_type="application/json", body=body, form=OIP_JSON)


async def reload(client: Client, base: str, model: str, order: ModelOrder, fields: bytes, call: Call) -> Answer:
    """Reload the server's configuration: `POST /v1/config/reload`, which returns the state of every model."""
    if order.order == "unload":
        raise Unsupported(
            "OpenVINO Model Server unloads what its configuration file no longer has, when that is loaded."
        )
    response = await client.request(b"POST", f"{base}/v1/config/reload".encode(), fields, b"", call.deadline)
    body = await response.read(MAX_ERROR_BODY)
    if response.status not in (200, 201):
        await refuse(order, response, body)
    state = listed_state(body, model)
    if state is None:
        raise BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if not state:
        raise failed_status.not_ready(order)
    return Answer(content_type="application/json", body=b"{}", form=OIP_JSON)


# OpenVINO Model Server's list of models.


class _Version(msgspec.Struct):
    state: str = ""


class _Model(msgspec.Struct):
    model_version_status: list[_Version] = []


_config = msgspec.json.Decoder(dict[str, _Model]).decode

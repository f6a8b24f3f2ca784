"""Orders to servers of the Open Inference Protocol over HTTP: the repository extension, and OpenVINO's reload."""

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, Unsupported
from adapters.http1.client import Client
from adapters.paths import segment
from adapters.requests import ModelOrder
from adapters.types import OIP_JSON
from adapters.upstreams.oip import refusals as oip_refusals
from adapters.upstreams.oip.responses import MAX_ERROR_BODY, refuse
from adapters.wire.oip import ovms


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
    state = ovms.state_of(body, model)
    if state is None:
        raise BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if not state:
        raise oip_refusals.not_ready(order)
    return Answer(content_type="application/json", body=b"{}", form=OIP_JSON)

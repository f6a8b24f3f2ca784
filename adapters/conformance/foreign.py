"""Builds a subject for any server from the metadata that its adapter reports."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from adapters.base import Adapter
from adapters.conformance import requests
from adapters.conformance.bench import Nonconforming, metrics_page, within
from adapters.conformance.subject import Subject
from adapters.errors import InferenceError, Unsupported
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import ITEM_SIZE, Tensor, element_count
from adapters.wire import signals
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import TensorMetadata
from config.schema.config import PoolConfig
from config.schema.protocols import BUILT_IN

NO_TENSORS = "Servers of this protocol report no tensors."
ONES_OWN = "An app defines its own requests and answers."
NOT_ORDERED = "The suite unloads no model of a server in use: name a model with --load that may be unloaded."
ANOTHERS = "The probe detects only servers of Headrace's own protocols."
NO_METRICS = "/metrics has no supported metric: give the URL of the metrics with --metrics."


async def foreign(
    pool: PoolConfig, adapter: Adapter, model: str, *, version: str = "", metrics_url: str = "", load: str = ""
) -> Subject:
    """Build a subject of the pool's first endpoint. Raises `InferenceError` if it reports no metadata of the model."""
    fields = await _requests_of(pool, adapter, model)
    unseen = dict(fields.pop("unseen", {}))
    lacks = dict(fields.pop("lacks", {}))
    if "stream" in fields and (why := await _refuses(adapter, fields["stream"]())):
        del fields["stream"]
        unseen["stream"] = why
    if why := await _refuses(adapter, ModelQuery(model=model, about="ready")):
        lacks["readiness"] = why
    url = pool.endpoints[0].url
    metrics_at = metrics_url or await _metrics(url)
    if not metrics_at:
        unseen["load signals"] = NO_METRICS
    if pool.protocol.name not in BUILT_IN:
        unseen["probe"] = ANOTHERS
    if not load:
        unseen["load and unload"] = NOT_ORDERED
    return Subject(
        system=f"{pool.protocol.name} at {url}", version=version, how="foreign", pool=pool, pieces=1,
        signals=metrics_at, order=load, lacks=lacks, unseen=unseen, **fields,
    )  # fmt: skip


async def _refuses(adapter: Adapter, request: ModelRequest) -> str:
    """The reason for which the protocol does not support a request; empty if it does."""
    try:
        answer = await adapter.call(request, within())
    except Unsupported as error:
        return error.message
    except InferenceError:
        return ""  # the suite reports this failure
    await answer.aclose()
    return ""


async def _requests_of(pool: PoolConfig, adapter: Adapter, model: str) -> dict[str, Any]:
    """The requests of a subject, according to the operations that its protocol offers."""
    offers = pool.protocol.offers
    if "text" in offers:
        return _of_text(model)
    if "tensors" in offers:
        answer = await adapter.call(ModelQuery(model=model, about="metadata"), within())
        return _of_tensors(model, oip_bodies.decode_metadata(answer.body or b"").inputs)
    return _of_an_app(model)


def _of_text(model: str) -> dict[str, Any]:
    return {
        "right": requests.chat(model),
        "is_right": requests.has_text,
        "stream": requests.chat(model, stream=True),
        "mistake": requests.chat(model, temperature="warm"),
        "lacks": {"metadata": NO_TENSORS},
    }


def _of_tensors(model: str, inputs: list[TensorMetadata]) -> dict[str, Any]:
    """Requests with tensors of zeros in the smallest shape."""
    zeros = [_zeros(one) for one in inputs]
    wrong = [Tensor(f"{one.name}-of-nobody", one.datatype, one.shape, one.data) for one in zeros]
    return {
        "right": requests.tensors(model, *zeros),
        "stream": requests.tensors(model, *zeros, kind="infer_stream"),
        "mistake": requests.tensors(model, *wrong),
    }


def _of_an_app(model: str) -> dict[str, Any]:
    return {
        "right": requests.app(model),
        "lacks": {"metadata": NO_TENSORS},
        "unseen": dict.fromkeys(("stream", "bad input", "unknown model", "readiness", "oddities"), ONES_OWN),
    }


def _zeros(one: TensorMetadata) -> Tensor:
    shape = tuple(size if size > 0 else 1 for size in one.shape)
    # A BYTES element has a prefix with its length: four zero bytes are an empty element.
    return Tensor(one.name, one.datatype, shape, bytes(element_count(shape) * ITEM_SIZE.get(one.datatype, 4)))


async def _metrics(url: str) -> str:
    """The URL of the metrics page, if the server has it at the usual path; otherwise empty."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return ""
    usual = f"{parts.scheme}://{parts.netloc}/metrics"
    with suppress(InferenceError, Nonconforming, ValueError):
        if signals.read(await metrics_page(usual), "auto") is not None:
            return usual
    return ""

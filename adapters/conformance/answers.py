"""Checks of the responses of a healthy server."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from adapters.conformance import acts
from adapters.conformance.bench import PATIENCE, Bench, Check, fail, metrics_page, refused
from adapters.detection.detect import detect
from adapters.errors import BackendError, InferenceError, NotFound, TransportError, Unavailable, Unsupported
from adapters.requests import ModelOrder, ModelQuery
from adapters.types import ModelPart, Order
from adapters.wire import signals
from config.schema.protocols.catalogue import AutoProtocol

UNKNOWN_MODEL = "headrace-no-such-model"
NOWHERE = "http://127.0.0.1:1"
_LOOK = 0.1


async def infers(bench: Bench) -> None:
    answer = await bench.call(bench.subject.right())
    if answer.body is None:
        fail("was answered with a stream, though none was requested")
    if bench.subject.is_right is not None and not bench.subject.is_right(answer):
        fail("the answer is not the right one")


async def streams(bench: Bench) -> None:
    make_request = bench.subject.stream or fail(
        "the subject defines neither a streaming request nor the reason for having none"
    )
    answer = await bench.call(make_request())
    pieces = await bench.pieces(answer)
    # One piece may contain several events that arrived together.
    events = sum(max(1, piece.count(b"\n\n")) for piece in pieces)
    if events < bench.subject.pieces:
        fail(f"a stream of {events} pieces, where {bench.subject.pieces} were expected")
    if not answer.ended or answer.error is not None:
        fail("the stream does not end correctly")


async def reports_metadata(bench: Bench) -> None:
    answer = await bench.call(_question(bench, "metadata"))
    metadata = msgspec.json.decode(answer.body or b"")
    if not metadata.get("inputs") or not metadata.get("outputs"):
        fail("the model's metadata has no inputs or no outputs")
    for tensor in (*metadata["inputs"], *metadata["outputs"]):
        if not (tensor["name"] and tensor["datatype"] and isinstance(tensor["shape"], list)):
            fail("a tensor of the model's metadata is not complete")


async def has_no_metadata(bench: Bench) -> None:
    await refused(bench.call(_question(bench, "metadata")), Unsupported)


async def reports_health(bench: Bench) -> None:
    await bench.adapter.probe(PATIENCE)
    ill, _ = await bench.before(acts.Refusing(500))
    await refused(ill.probe(PATIENCE), BackendError, TransportError)
    await refused(bench.at(NOWHERE).probe(PATIENCE), TransportError)


async def reports_readiness(bench: Bench) -> None:
    await bench.call(_question(bench, "ready"))
    query = ModelQuery(model=UNKNOWN_MODEL, about="ready")
    await refused(bench.call(query), Unavailable, NotFound, code="upstream_model_not_found")


async def has_no_readiness(bench: Bench) -> None:
    await refused(bench.call(_question(bench, "ready")), Unsupported)


async def is_recognised(bench: Bench) -> None:
    subject = bench.subject
    looked_at = subject.pool.model_copy(update={"protocol": AutoProtocol(name="auto")})
    detection = await detect(looked_at, bench.address(subject.url), names=(subject.right().model,))
    if detection is None:
        fail("the probe does not detect the server")
    expected = subject.probed_as or subject.pool.protocol.name
    if expected not in [one.protocol["name"] for one in detection.pools]:
        fail(f"the probe detects {detection.system}, which speaks {detection.pools[0].protocol['name']}")


async def reports_load(bench: Bench) -> None:
    url = bench.subject.signals or fail("the subject defines neither its metrics nor the reason for having none")
    if signals.read(await metrics_page(url), bench.subject.signals_server) is None:
        fail("the metrics contain no name that reports the server's load")


async def takes_orders(bench: Bench) -> None:
    model = bench.subject.order or fail("the subject defines neither a model to unload nor the reason for having none")
    reports = "readiness" not in bench.subject.lacks
    await _give(bench, "unload", model)
    try:
        if reports:
            await _until(lambda: _is_ready(bench, model), False, "the model is still ready after it was unloaded")
    finally:
        await _give(bench, "load", model)
    if reports:
        await _until(lambda: _is_ready(bench, model), True, "the model is not ready, though it was loaded")


async def takes_no_orders(bench: Bench) -> None:
    order = ModelOrder(model=bench.subject.right().model, order="load")
    await refused(bench.call(order), Unsupported)


async def _give(bench: Bench, order: Order, model: str) -> None:
    await bench.call(ModelOrder(model=model, order=order, body=b"{}"))


async def _is_ready(bench: Bench, model: str) -> bool:
    try:
        await bench.call(ModelQuery(model=model, about="ready"))
    except InferenceError:
        return False
    return True


async def _until(look: Callable[[], Awaitable[bool]], expected: bool, otherwise: str) -> None:
    """Poll until `look` returns `expected`: some servers execute an order with a delay."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while await look() != expected:
        if asyncio.get_running_loop().time() > end:
            fail(otherwise)
        await asyncio.sleep(_LOOK)


def _question(bench: Bench, about: ModelPart) -> ModelQuery:
    return ModelQuery(model=bench.subject.right().model, about=about)


CHECKS = (
    Check("infer", "A valid request is answered correctly.", infers),
    Check("stream", "A streamed answer arrives in pieces, and has an end.", streams),
    Check("metadata", "A model's inputs and outputs are read from the server.", reports_metadata, has_no_metadata),
    Check("probe", "The server and its protocol are detected.", is_recognised),
    Check("health", "The health check passes for a healthy server, and for no other.", reports_health),
    Check(
        "readiness", "A model that is not ready is distinguished from a ready one.", reports_readiness, has_no_readiness
    ),
    Check("load signals", "Server-reported load can drive balancing.", reports_load),
    Check("load and unload", "Operators load and unload models through the gateway.", takes_orders, takes_no_orders),
)

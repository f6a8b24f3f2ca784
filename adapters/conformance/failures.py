"""Checks of failures. The class of an error decides between a rejection, a retry elsewhere and an open breaker."""

from adapters.conformance import acts
from adapters.conformance.answers import UNKNOWN_MODEL
from adapters.conformance.bench import Bench, Check, fail, refused, within
from adapters.errors import BackendError, CallerError, CapacityError, InferenceError, NotFound, TransportError

HTML = acts.Replying(b"<html><body>It works!</body></html>", "text/html")
NOT_TEXT = acts.Replying(b'\xff\xfe{"', "application/json")
NOTHING = acts.Replying(b"")
ELSEWHERE = acts.Refusing(302, code=2, body=b"", more={"location": "/elsewhere"})
ENDLESS_EVENT = acts.Endless("text/event-stream", piece=b"data: " + b"x" * acts.MiB)
ERROR_EVENT = acts.Replying(b'data: {"error":"no"}\n\n', "text/event-stream")
NO_END = acts.Replying(b": hello\n\n", "text/event-stream")


async def unknown_model(bench: Bench) -> None:
    request = bench.subject.right()
    await refused(bench.call(request.codec.rename(request, UNKNOWN_MODEL)), NotFound, code="upstream_model_not_found")


async def bad_input(bench: Bench) -> None:
    make_request = bench.subject.mistake or fail(
        "the subject defines neither an invalid request nor the reason for having none"
    )
    error = await refused(bench.call(make_request()), CallerError)
    if not error.message:
        fail("an invalid request is refused without a message")


async def overload(bench: Bench) -> None:
    for act in bench.subject.full:
        adapter, _ = await bench.before(act)
        error = await refused(adapter.call(bench.subject.right(), within()), CapacityError)
        if not error.retryable:
            fail("a request that a full server refused is not retried elsewhere")


async def failure(bench: Bench) -> None:
    adapter, _ = await bench.before(acts.Refusing(500, code=13))
    _blames(await refused(adapter.call(bench.subject.right(), within()), BackendError))


async def oddities(bench: Bench) -> None:
    for odd in (HTML, NOT_TEXT, NOTHING, ELSEWHERE):
        adapter, stood = await bench.before(odd)
        _blames(await refused(adapter.call(bench.subject.right(), within()), BackendError, TransportError))
        if len(stood.requests) > 3:
            fail("a redirect was followed, or a failed request was repeated")
    if bench.subject.stream is not None:
        for odd in _odd_streams(bench):
            adapter, _ = await bench.before(odd)
            _blames(await refused(adapter.call(bench.subject.stream(), within()), BackendError, TransportError))


def _odd_streams(bench: Bench) -> list[acts.Replying]:
    """The invalid streams that the subject's protocol must reject.

    A stream of tensors may end without any response, and over gRPC an impostor cannot send any other invalid stream.
    """
    protocol = bench.subject.pool.protocol
    if not protocol.has_paths:
        return []
    return [HTML, ERROR_EVENT, NO_END] if "text" in protocol.offers else [HTML, ERROR_EVENT]


async def size_limits(bench: Bench) -> None:
    adapter, _ = await bench.before(acts.Endless())
    await refused(adapter.call(bench.subject.right(), within()), BackendError)
    if bench.subject.stream is not None:
        adapter, _ = await bench.before(ENDLESS_EVENT)
        await refused(adapter.call(bench.subject.stream(), within()), BackendError)


def _blames(error: InferenceError) -> None:
    if not error.blames_endpoint:
        fail(f"{type(error).__name__} does not blame the server")


CHECKS = (
    Check("unknown model", "A model that the server does not know is not treated as an overload.", unknown_model),
    Check("bad input", "A client's mistake is reported to the client, and opens no breaker.", bad_input),
    Check("overload", "A full server is distinguished from a broken one.", overload),
    Check("failure", "A server's failure counts against it, and is retried elsewhere.", failure),
    Check(
        "oddities",
        "An invalid response with status 200 reaches no client as an answer; redirects are not followed.",
        oddities,
    ),
    Check("size limits", "An endless response is aborted.", size_limits),
)

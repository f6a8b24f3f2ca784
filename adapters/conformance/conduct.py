"""Checks of an adapter's conduct towards its server: cancellation, deadlines, credentials."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import SecretStr

from adapters.conformance import acts
from adapters.conformance.bench import PATIENCE, SHORT, Bench, Check, fail, refused, within
from adapters.conformance.subject import MakeRequest
from adapters.errors import BackendError, DeadlineError, UpstreamTimeout
from adapters.requests import ModelRequest

KEY = "key-of-the-gateway-itself"
LEAVE_SECONDS = 20.0
TRIES = 3
"""Long requests. On a busy machine one may end between two looks at the server's metrics."""
_LOOK = 0.1


async def cancellation(bench: Bench) -> None:
    adapter, stood = await bench.before(acts.Silent())
    call = asyncio.create_task(adapter.call(bench.subject.right(), within()))
    while not stood.requests:
        if call.done():
            await call
        await asyncio.sleep(_LOOK)
    await _cancelled(call)
    await _within(stood.left.wait(), "the server was not informed that the client disconnected")
    if bench.subject.running is not None:
        make_request = bench.subject.long or fail("the subject reports running requests, but defines no long request")
        await _seen_at_the_server(bench, make_request)


async def _seen_at_the_server(bench: Bench, make_request: MakeRequest) -> None:
    running = bench.subject.running
    assert running is not None
    for _ in range(TRIES):
        reading = asyncio.create_task(_read(bench, make_request()))
        if await _is_reported(running, reading):
            break
    else:
        fail(f"each of {TRIES} long requests ended before the server reported it as running")
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading

    async def stopped() -> None:
        while await running() > 0:  # noqa: ASYNC110 - another process' count
            await asyncio.sleep(_LOOK)

    await _within(stopped(), "the server continues, though the client disconnected")


async def _read(bench: Bench, request: ModelRequest) -> None:
    """Read a response to its end: a stream that is not read does not show its end."""
    answer = await bench.call(request)
    try:
        if answer.body is None:
            async for _ in answer:
                pass
    finally:
        await answer.aclose()


async def _is_reported(running: Callable[[], Awaitable[float]], reading: asyncio.Task[None]) -> bool:
    """Whether the server reports the request as running before its end. Raises the failure of the request."""
    while await running() < 1:
        if reading.done():
            break
        await asyncio.sleep(_LOOK)
    if not reading.done():
        return True
    await reading
    return False


async def _cancelled(call: "asyncio.Task[object]") -> None:
    """Cancel a call, before or after the beginning of its answer, like a client that disconnects."""
    call.cancel()
    with suppress(asyncio.CancelledError):
        answer = await call
        await answer.aclose()  # type: ignore[attr-defined]


async def _within(awaited: object, otherwise: str) -> None:
    try:
        await asyncio.wait_for(awaited, LEAVE_SECONDS)  # type: ignore[arg-type]
    except TimeoutError:
        fail(otherwise)


async def deadlines(bench: Bench) -> None:
    adapter, _ = await bench.before(acts.Silent())
    async with asyncio.timeout(PATIENCE / 2):
        await refused(adapter.call(bench.subject.right(), within(SHORT)), DeadlineError)
        await refused(adapter.call(bench.subject.right(), within(first_byte=SHORT)), UpstreamTimeout)


async def credentials(bench: Bench) -> None:
    adapter, stood = await bench.before(acts.Refusing(401, code=16), key=SecretStr(KEY))
    await refused(adapter.call(bench.subject.right(), within()), code="upstream_credential")
    if not any(KEY in value for value in stood.requests[-1].values()):
        fail("the pool's key is not among the fields of a request")
    await refused(adapter.probe(PATIENCE), BackendError)
    if not any(KEY in value for value in stood.requests[-1].values()):
        fail("the pool's key is not among the fields of a health check")


CHECKS = (
    Check("cancellation", "A client that disconnects stops the work.", cancellation),
    Check("deadline", "A silent server is abandoned in time.", deadlines),
    Check(
        "credentials",
        "The pool's own key is sent to the server, and its refusal is not the client's error.",
        credentials,
    ),
)

"""The call of Envoy ends at any moment, also while the picker sends: only the request ends, and nothing is reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import h2.settings
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.errors import InferenceError
from adapters.http1.budget import Budget
from adapters.http1.client import Client
from adapters.http1.message import Request, Response
from adapters.http1.relay import RELAY
from adapters.http1.server import Limits
from adapters.http2.call import GrpcCall
from adapters.http2.frames import ErrorCode
from adapters.http2.status import Code, GrpcError
from adapters.types import Deadline
from adapters.wire.protos.envoy import FULL_DUPLEX, PROCESS, ext_proc
from gateway.features.picker.listener import PickerServer
from gateway.fronts.errors import openai_refusal
from tests.adapters.http2.peer import connected, framed, request

ENDPOINT = "http://127.0.0.1:9"


class Front:
    """Sends each request through the relay once it may, and answers with the response."""

    def __init__(self) -> None:
        self.running = self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self, http: Request) -> Response:
        self.running += 1
        self.begun += 1
        client, relay = Client(ENDPOINT), RELAY.get()
        assert relay is not None
        deadline = Deadline(asyncio.get_running_loop().time() + 60, 60, 60)
        try:
            await self.go.wait()
            with relay.carrying([ENDPOINT]):
                response = await client.request(b"POST", b"/v1/x", b"", bytes(100_000), deadline)
            return Response(response.status, [], await response.read())
        except InferenceError as error:
            return openai_refusal(502, error.code, error.message)
        finally:
            self.running -= 1
            await client.aclose()


@asynccontextmanager
async def picking() -> AsyncIterator[tuple[PickerServer, int, Front, list[dict[str, Any]]]]:
    """A picker on loopback: its port, its front, and what the loop has to report."""
    front, reported = Front(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server = PickerServer(front, Limits(), openai_refusal, lambda: True, Budget(2**30), 0)
    _, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield server, port, front, reported
    finally:
        await server.aclose()


def messages() -> bytes:
    """A whole request of a client."""
    head, body = ext_proc.ProcessingRequest(), ext_proc.ProcessingRequest()
    for name, value in ((":method", "POST"), (":path", "/v1/x"), (":authority", "x"), (":scheme", "http")):
        head.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    head.protocol_config.request_body_mode = head.protocol_config.response_body_mode = FULL_DUPLEX
    body.request_body.body, body.request_body.end_of_stream = b"{}", True
    return b"".join(framed(message.SerializeToString()) for message in (head, body))


ENDS: list[Callable[[GrpcCall], None]] = [
    lambda call: call.close(GrpcError(Code.CANCELLED, "The client has disconnected.")),
    lambda call: call.break_off(ErrorCode.CANCEL),
    lambda call: call.refuse(GrpcError(Code.DEADLINE_EXCEEDED, "The call's deadline has passed.")),
]


@given(st.sampled_from(ENDS), st.sampled_from([0, 1, 5000, 2**20]), st.integers(0, 6), st.booleans())
@example(ENDS[0], 0, 0, True)
@example(ENDS[1], 0, 0, True)
async def test_any_end_of_a_call_is_quiet(
    end: Callable[[GrpcCall], None], window: int, turns: int, begins: bool
) -> None:
    """The front begins to send `turns` of the loop before the end: with 0, in the same one."""
    async with picking() as (server, port, front, reported), connected(port, start=False) as peer:
        first = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        peer.h2.local_settings = h2.settings.Settings(initial_values=first)
        peer.takes_data = False
        peer.start()
        peer.call(request(PROCESS.path), messages(), end=False)
        await peer.until(lambda: front.begun)
        if begins:
            front.go.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        (connection,) = server.connections
        for stream in list(connection.streams.values()):
            assert isinstance(stream, GrpcCall)
            end(stream)
        front.go.set()
        await peer.until(lambda: not front.running)
        assert reported == []

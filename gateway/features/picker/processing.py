"""One call of Envoy: the order of its messages, in both modes of bodies."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from adapters.errors import ClientGone, Unsupported
from adapters.http1.host import Host
from adapters.http1.relay import RELAY, RelayedExchange
from adapters.http1.stream_transport import NoRequest
from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, GrpcError
from adapters.wire import ext_proc as wire
from adapters.wire.ext_proc import Field, MalformedProcessing
from adapters.wire.protos.envoy import BUFFERED, FULL_DUPLEX
from gateway.features.picker.client_half import ClientHalf
from gateway.features.picker.upstream_half import Subset, UpstreamHalf

FIRST_SECONDS = 10.0
"""Seconds in which a call must have its first message."""
LINGER_SECONDS = 5.0
"""Seconds in which Envoy must end a call after its last response."""
TAIL_SECONDS = 1.0
"""Seconds in which an upstream must end its body after the end of the answer that it contains."""
PLAIN = [(b"content-type", b"text/plain; charset=utf-8")]
GONE = "The proxy has ended the call of this request."
WRONG_MODE = (
    "The endpoint picker reads whole requests and responses: set request_body_mode and response_body_mode of Envoy's "
    "external processing to FULL_DUPLEX_STREAMED, or to BUFFERED, and send the headers of both.\n"
)


class Processing:
    """One request of a client, from its head to the end of its response.

    Envoy sends each message once, and each needs one response; the pieces of a body in full duplex are replaced by any
    number of pieces.
    """

    def __init__(
        self, call: GrpcCall, host: Host, expiring: set[RelayedExchange], *, most_body: int, alternatives: int
    ) -> None:
        self.expiring = expiring
        self._call = call
        self._host = host
        self._most_body = most_body
        self._alternatives = alternatives
        self._client = ClientHalf(self, host, call.peer)
        self._upstream = UpstreamHalf(self, (), Subset(None), bodiless=True)
        self._whole_request = self._whole_response = False  # buffered, not in full duplex
        self._request_ended = False
        self._request_trailers = self._response_trailers = False
        self._fields: Sequence[Field] = ()  # of the response
        self._relayed = False  # the response changes one that Envoy has received; otherwise it is immediate
        self._body = bytearray()  # the part of the response that Envoy does not have
        self._complete = False  # `_body` has the end of the response
        self._awaited = False  # Envoy waits for the response to a buffered body
        self._passes = False  # Envoy answers the client by itself
        self._impatient = False  # the upstream does not end its body
        self._over = False  # Envoy has the whole response
        self._room: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Answer the call until Envoy ends it. Raises `GrpcError` for messages that are not valid."""
        try:
            await self._begin()
            while (message := await self._next()) is not None:
                await self._receive(message)
        finally:
            self._client.lose()
            self._upstream.lose()
            if self._timer is not None:
                self._timer.cancel()
            if self._room is not None:
                self._room.cancel()

    async def _next(self) -> Any:
        data = await self._call.read()
        if data is None:
            return None
        try:
            return wire.decode(data)
        except MalformedProcessing as error:
            raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None

    # ── the request ───────────────────────────────────────────────────────────────────────────────────

    async def _begin(self) -> None:
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                first = await self._next()
        except TimeoutError:
            raise GrpcError(Code.DEADLINE_EXCEEDED, "The call has no first message.") from None
        if first is None or first.WhichOneof("request") != "request_headers" or first.observability_mode:
            raise GrpcError(Code.INVALID_ARGUMENT, "A call begins with request_headers, and its responses count.")
        if first.HasField("protocol_config"):
            modes = first.protocol_config.request_body_mode, first.protocol_config.response_body_mode
            self._whole_request, self._whole_response = (mode == BUFFERED for mode in modes)
            if not {FULL_DUPLEX, BUFFERED}.issuperset(modes):
                self._refuse(500, WRONG_MODE)
                return
        fields = wire.fields_of(first.request_headers.headers)
        last = self._request_ended = first.request_headers.end_of_stream
        subset = Subset(wire.subset_of(first))
        self._upstream = UpstreamHalf(self, fields, subset, bodiless=last, alternatives=self._alternatives)
        RELAY.set(self._upstream)  # the task that answers the request inherits this context
        if self._whole_request and not last:
            self._call.send(wire.changed("request_headers"))
        try:
            self._client.request(fields, last=last)
        except NoRequest as error:
            self._refuse(400, f"{error}\n")

    async def forward(
        self, fields: Sequence[Field], removed: Sequence[str], body: bytes, destinations: Sequence[str]
    ) -> None:
        """See `upstream_half.Forwarder`."""
        if self._call.ended or self._call.closed:
            raise ClientGone(GONE)
        without_body = self._upstream.bodiless
        if without_body and body:
            raise Unsupported("This request has no body, and its server needs one.")
        if self._whole_request and not without_body:
            self._call.send(wire.routed("request_body", fields, removed, body, destinations))
        else:
            self._call.send(wire.routed("request_headers", fields, removed, None, destinations))
            if not without_body:
                for message in wire.streamed("request_body", body, last=not self._request_trailers):
                    self._call.send(message)
                if self._request_trailers:
                    self._call.send(wire.changed("request_trailers"))
        try:
            await self._call.room()
        except GrpcError:
            raise ClientGone(GONE) from None

    # ── messages of Envoy ─────────────────────────────────────────────────────────────────────────────

    async def _receive(self, message: Any) -> None:
        kind = message.WhichOneof("request")
        if kind == "request_body":
            await self._receive_request(message.request_body.body, last=message.request_body.end_of_stream)
        elif kind == "request_trailers":
            await self._receive_request_trailers()
        elif kind == "response_headers":
            self._receive_head(message)
        elif kind == "response_body":
            await self._receive_body(message.response_body.body, last=message.response_body.end_of_stream)
        elif kind == "response_trailers":
            self._receive_trailers()
        else:
            raise GrpcError(Code.INVALID_ARGUMENT, "A call has one request, and this message is of none.")

    async def _receive_request(self, data: bytes, *, last: bool) -> None:
        if self._request_ended:
            raise GrpcError(Code.INVALID_ARGUMENT, "The body of the request has ended.")
        self._request_ended = last or self._whole_request
        await self._client.body(data, last=self._request_ended)

    async def _receive_request_trailers(self) -> None:
        if self._whole_request:
            self._call.send(wire.changed("request_trailers"))
        else:
            self._request_trailers = True
            await self._receive_request(b"", last=True)

    def _receive_head(self, message: Any) -> None:
        headers = message.response_headers
        if self._upstream.names is not None or self._passes:
            raise GrpcError(Code.INVALID_ARGUMENT, "The response has begun already.")
        if not self._upstream.sent:  # such as a timeout of Envoy
            self._passes = True
            self._client.lose()
            self._call.send(wire.changed("response_headers"))
            return
        self._upstream.served = wire.served_of(message)
        if self._whole_response and not headers.end_of_stream:
            self._call.send(wire.changed("response_headers"))
        self._upstream.head(wire.fields_of(headers.headers), last=headers.end_of_stream)

    async def _receive_body(self, data: bytes, *, last: bool) -> None:
        if self._passes:
            if self._whole_response:
                self._call.send(wire.changed("response_body"))
            else:
                for message in wire.streamed("response_body", data, last=last):
                    self._call.send(message)
                await self._call.room()
            return
        if self._upstream.names is None or self._upstream.ended:
            raise GrpcError(Code.INVALID_ARGUMENT, "A body is between the head and the end of the response.")
        self._awaited = self._whole_response
        await self._upstream.body(data, last=last or self._whole_response)
        self._conclude()

    def _receive_trailers(self) -> None:
        if self._passes or self._whole_response:
            self._call.send(wire.changed("response_trailers"))
            return
        self._response_trailers = True
        self._upstream.end()
        self._conclude()

    # ── the response ──────────────────────────────────────────────────────────────────────────────────

    def respond(self, fields: Sequence[Field]) -> None:
        """See `client_half.Responder`."""
        self._fields = fields
        self._relayed = self._upstream.names is not None and not self._upstream.empty
        if self._relayed and not self._whole_response:
            self._call.send(wire.changed("response_headers", fields, self._dropped()))

    def respond_body(self, body: bytes, *, last: bool) -> bool:
        """See `client_half.Responder`."""
        self._body += body
        self._complete = last
        if self._relayed and not self._whole_response:
            if not last:
                self._stream(last=False)
        elif len(self._body) > self._most_body:
            self.respond_never()
            return False
        self._conclude()
        return self._has_room()

    def _conclude(self) -> None:
        """End the response, when it is complete and Envoy can receive its end."""
        if not self._complete or self._over:
            return
        if not self._relayed:
            self._answer_at_once()
        elif self._whole_response:
            if not self._awaited:
                return
            self._call.send(wire.changed("response_body", self._fields, self._dropped(), bytes(self._body)))
        elif self._upstream.ended or self._impatient:
            self._stream(last=not self._response_trailers)
            if self._response_trailers:
                self._call.send(wire.changed("response_trailers"))
        else:
            self._stream(last=False)
            self._later(TAIL_SECONDS, self._stop_waiting)
            return
        self._over = True
        self._later(LINGER_SECONDS, self._leave)

    def _answer_at_once(self) -> None:
        status, *fields = self._fields
        fields = [field for field in fields if field[0] != b"content-length"]
        self._call.send(wire.immediate(int(status[1]), fields, bytes(self._body)))

    def _refuse(self, status: int, message: str) -> None:
        """Answer a request that no front receives."""
        self._call.send(wire.immediate(status, PLAIN, message.encode()))
        self._over = self._passes = True
        self._later(LINGER_SECONDS, self._leave)

    def _stream(self, *, last: bool) -> None:
        """Send the pending part of the response."""
        if self._body or last:
            body, self._body = bytes(self._body), bytearray()
            for message in wire.streamed("response_body", body, last=last):
                self._call.send(message)

    def _dropped(self) -> list[str]:
        """The upstream's fields that the response does not have."""
        sent = {name.decode("latin-1") for name, _ in self._fields}
        return [name for name in self._upstream.names or () if name not in sent and not name.startswith("x-envoy-")]

    def _has_room(self) -> bool:
        """Whether Envoy reads as fast as the response arrives. If not, the response continues when it has."""
        if not self._call.unsent:
            return True
        if self._room is None:
            self._room = self._host.loop.create_task(self._await_room())
        return False

    async def _await_room(self) -> None:
        try:
            await self._call.room()
        except GrpcError:
            return  # the call has ended, which cancels the request
        self._room = None
        self._client.room()

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def respond_never(self) -> None:
        """See `client_half.Responder`. Envoy resets the client's response."""
        self._complete, self._over = False, True
        self._call.refuse(GrpcError(Code.ABORTED, "The response broke off."))

    def _stop_waiting(self) -> None:
        self._impatient = True
        self._conclude()

    def _leave(self) -> None:
        self._call.refuse(GrpcError(Code.ABORTED, "The call continues after the end of its response."))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.loop.call_later(seconds, action)

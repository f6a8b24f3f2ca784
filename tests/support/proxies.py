"""A proxy as an endpoint picker sees it: sends one request in the messages of Envoy, and calls the picked endpoint."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc

from adapters.wire.protos.envoy import BUFFERED, FULL_DUPLEX, PROCESS, ext_proc

PIECE = 1000


@dataclass
class Outcome:
    """What the client and the endpoint of one request receive."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    immediate: bool = False
    destinations: list[str] = field(default_factory=list)
    metadata: str = ""
    sent: dict[str, str] = field(default_factory=dict)
    """The header fields that the endpoint receives."""
    upstream_body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


class Proxy:
    """Sends requests through the picker at `address`. `whole`: bodies are buffered, not in full duplex."""

    def __init__(self, channel: grpc.aio.Channel, *, whole: bool = False) -> None:
        self.call = channel.stream_stream(
            PROCESS.path,
            request_serializer=ext_proc.ProcessingRequest.SerializeToString,
            response_deserializer=ext_proc.ProcessingResponse.FromString,
        )
        self.mode = BUFFERED if whole else FULL_DUPLEX
        self.refuses: set[str] = set()
        """Destinations that the proxy cannot reach."""

    @property
    def whole(self) -> bool:
        return bool(self.mode == BUFFERED)

    def head(
        self, method: str, path: str, headers: Mapping[str, str], *, last: bool, subset: Sequence[str] | None = None
    ) -> Any:
        """The first message of a request."""
        message = ext_proc.ProcessingRequest()
        fields = {":method": method, ":path": path, ":authority": "example.org", ":scheme": "http", **headers}
        for name, value in fields.items():
            message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
        message.request_headers.end_of_stream = last
        message.protocol_config.request_body_mode = self.mode
        message.protocol_config.response_body_mode = self.mode
        if subset is not None:
            fields = message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields
            values = fields["x-gateway-destination-endpoint-subset"].list_value
            values.SetInParent()
            for address in subset:
                values.values.add(string_value=address)
        return message

    async def send(
        self,
        body: bytes,
        headers: Mapping[str, str],
        *,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        subset: Sequence[str] | None = None,
        trailers: bool = False,
        reports: bool = True,
    ) -> Outcome:
        """The outcome of one request. `reports`: the proxy reports the endpoint that served it."""
        call, outcome = self.call(), Outcome()
        headers = {"content-length": str(len(body)), **headers} if body else headers
        await call.write(self.head(method, path, headers, last=not body, subset=subset))
        try:
            if not await self._send_request(call, outcome, body, headers, trailers=trailers):
                return outcome
            await self._respond(call, outcome, method, path, reports=reports)
            return outcome
        finally:
            await call.done_writing()
            call.cancel()

    async def _send_request(
        self, call: Any, outcome: Outcome, body: bytes, headers: Mapping[str, str], *, trailers: bool
    ) -> bool:
        """Send the request, and receive the pick. False if the answer is immediate."""
        if body and self.whole:
            answer = await call.read()
            if self._is_immediate(answer, outcome):
                return False
            assert answer.WhichOneof("response") == "request_headers", answer
            await call.write(ext_proc.ProcessingRequest(request_body={"body": body, "end_of_stream": True}))
        elif body:
            pieces = [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
            for number, piece in enumerate(pieces):
                last = number == len(pieces) - 1 and not trailers
                await call.write(ext_proc.ProcessingRequest(request_body={"body": piece, "end_of_stream": last}))
            if trailers:
                await call.write(ext_proc.ProcessingRequest(request_trailers={}))
        answer = await call.read()
        if self._is_immediate(answer, outcome):
            return False
        part = "request_body" if body and self.whole else "request_headers"
        assert answer.WhichOneof("response") == part, answer
        common = getattr(answer, part).response
        outcome.sent = _mutated(headers, common.header_mutation)
        outcome.destinations = outcome.sent["x-gateway-destination-endpoint"].split(",")
        entry = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields["x-gateway-destination-endpoint"]
        outcome.metadata = entry.string_value
        if body and self.whole:
            outcome.upstream_body = bytes(common.body_mutation.body)
        elif body:
            outcome.upstream_body = await _streamed(call, "request_body", trailers=trailers)
        return True

    async def _respond(self, call: Any, outcome: Outcome, method: str, path: str, *, reports: bool) -> None:
        reached = next((each for each in outcome.destinations if each not in self.refuses), None)
        if reached is None:
            served = 503, {"content-type": "text/plain"}, b"upstream connect error or disconnect/reset before headers"
        else:
            served = await _call(f"http://{reached}{outcome.sent.get(':path', path)}", method, outcome)
        status, headers, body = served
        message = ext_proc.ProcessingRequest()
        fields = {":status": str(status), **headers}
        if reached is not None:
            fields["x-envoy-upstream-service-time"] = "1"
            if reports:
                struct = message.metadata_context.filter_metadata["envoy.lb"].fields
                struct["x-gateway-destination-endpoint-served"].string_value = reached
        for name, value in fields.items():
            message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
        message.response_headers.end_of_stream = not body
        await call.write(message)
        if self.whole and body:
            assert (await call.read()).WhichOneof("response") == "response_headers"
        if body:
            await call.write(ext_proc.ProcessingRequest(response_body={"body": body, "end_of_stream": True}))
        answer = await call.read()
        if self._is_immediate(answer, outcome):
            return
        if self.whole and body:
            common = answer.response_body.response
            outcome.body = common.body_mutation.body
            fields = _mutated(fields, common.header_mutation)
        else:
            fields = _mutated(fields, answer.response_headers.response.header_mutation)
            outcome.body = await _streamed(call, "response_body") if body else b""
        outcome.status, outcome.headers = int(fields.pop(":status")), fields

    def _is_immediate(self, answer: Any, outcome: Outcome) -> bool:
        if answer is grpc.aio.EOF or answer.WhichOneof("response") != "immediate_response":
            assert answer is not grpc.aio.EOF, "the picker ended the call"
            return False
        immediate = answer.immediate_response
        outcome.immediate, outcome.status, outcome.body = True, immediate.status.code, immediate.body
        outcome.headers = _mutated({}, immediate.headers)
        return True


async def _streamed(call: Any, part: str, *, trailers: bool = False) -> bytes:
    body = b""
    while True:
        answer = await call.read()
        assert answer is not grpc.aio.EOF, "the picker ended the call inside a body"
        if trailers and answer.WhichOneof("response") == part.replace("body", "trailers"):
            return bytes(body)
        piece = getattr(answer, part).response.body_mutation.streamed_response
        body += bytes(piece.body)
        if piece.end_of_stream:
            return bytes(body)


async def _call(url: str, method: str, outcome: Outcome) -> tuple[int, dict[str, str], bytes]:
    headers = {name: value for name, value in outcome.sent.items() if not name.startswith((":", "content-length"))}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, data=outcome.upstream_body, headers=headers) as response,
    ):
        body = await response.read()
        fields = {name.lower(): value for name, value in response.headers.items()}
        fields.pop("transfer-encoding", None)
        return response.status, fields, body


def _mutated(fields: Mapping[str, str], mutation: Any) -> dict[str, str]:
    """Envoy removes first, then sets."""
    result = {name: value for name, value in fields.items() if name not in mutation.remove_headers}
    for option in mutation.set_headers:
        result[option.header.key] = option.header.raw_value.decode()
    return result


@asynccontextmanager
async def proxy(address: str, *, whole: bool = False) -> AsyncIterator[Proxy]:
    """A proxy in front of the picker at `address`."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield Proxy(channel, whole=whole)

"""`POST /v1/responses/input_tokens`: the number of tokens in a Response's input."""

from typing import Protocol

import msgspec

from adapters.errors import CallerError, Unsupported
from adapters.http1.message import Request, Response
from adapters.offload import messages
from adapters.wire.field_names import RESPONSES
from adapters.wire.responses import requests as wire
from gateway.auth.keys import Principal
from gateway.fronts import decoding
from gateway.fronts.anthropic import ESTIMATED
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.telemetry import Record

PATH = b"/v1/responses/input_tokens"


class Opening(Protocol):
    """Puts stored items before those of a body."""

    async def opened(self, principal: Principal, body: bytes) -> tuple[bytes, object]:
        """The body with the stored items, and what is stored of it."""
        ...


class _Count(msgspec.Struct):
    input_tokens: int


_count = msgspec.json.Decoder(_Count).decode
_encode = msgspec.json.Encoder().encode


class InputTokens:
    """The handler. The model's own server counts the tokens; if it cannot, the gateway estimates them."""

    def __init__(self, door: Door, storage: Opening | None = None) -> None:
        self._door = door
        self._storage = storage
        self._core = door.core
        self.route = DoorPath("/v1/responses/input_tokens", self._answer)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        require_json(http)
        body = await http.read()
        if self._storage is not None:
            body, _ = await self._storage.opened(principal, body)
        request = await decoding.decode(
            self._core.snapshot, messages.decode_response_count, body, wire.route_names, wire.OPERATION
        )
        try:
            answer = await self._core.handle(principal, request, http.headers, record)
        except Unsupported:
            tokens = await messages.estimate(request.chat, request.size)
            response = self._door.respond(record, _encoded(tokens))
            return Response(200, [*response.headers, ESTIMATED], response.body)
        except CallerError as error:
            raise RESPONSES.of(error) from None
        fields = [("content-type", "application/json"), *self._door.headers(record)]
        return Response(200, fields, _encoded(_count(answer.body or b"").input_tokens))


def _encoded(tokens: int) -> bytes:
    return _encode({"object": "response.input_tokens", "input_tokens": tokens})

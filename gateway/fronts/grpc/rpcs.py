"""The gRPC listener: selects the front of a call; credentials, ids and errors for all fronts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from adapters import statuses
from adapters.cut import survived
from adapters.errors import CallerError, InferenceError, Unsupported
from adapters.http2.call import GrpcCall
from adapters.http2.status import GrpcError
from gateway.auth.keys import Principal, bearer
from gateway.fronts.door import Door
from gateway.fronts.rights import GRPC
from gateway.telemetry import Record

Answer = Callable[[Principal, GrpcCall, Record], Awaitable[None]]


class Method(NamedTuple):
    """One method of a service: its operation in the access log, and its handler."""

    operation: str
    answer: Answer
    streams: bool = False
    """Whether a call may have several messages, each a separate request."""


def methods_of(answers: Mapping[str, Answer], streams: str = "") -> dict[str, Method]:
    """The methods by path, with the operations that the table of rights has. `streams` is the path of one that does."""
    return {path: Method(GRPC[path], answer, path == streams) for path, answer in answers.items()}


class Rpcs:
    """The handler of the gRPC listener. A call's path selects its method. `probes` need no key and report nothing
    about models. `others` handle unknown paths by a name in the call's metadata."""

    def __init__(
        self,
        door: Door,
        methods: Mapping[str, Method],
        probes: Mapping[str, Callable[[GrpcCall], Awaitable[None]]],
        others: Mapping[str, Method] | None = None,
    ) -> None:
        self._door = door
        self._methods = methods
        self._probes = probes
        self._others = others or {}

    async def __call__(self, call: GrpcCall) -> None:
        """Answer one call, and end its exchange exactly once."""
        if (probe := self._probes.get(call.path)) is not None:
            await probe(call)
            return
        method, core = self._methods.get(call.path) or self._other(call), self._door.core
        operation = method.operation if method is not None else "unknown"
        record = self._door.record(call.metadata, operation, call.peer)
        try:
            principal = self._authenticate(call, record)
            if method is None:
                raise Unsupported("Unknown method.", code="unknown_url")
            if principal.scope is not None:
                principal.scope.check_front(method.operation)
            call.charge_to(core.memory.of(principal.tenant))
            if not call.received_all and not method.streams:
                record.early = core.ledger.reserve_early(
                    principal.tenant, principal.subject, principal.team, core.clock()
                )
            await method.answer(principal, call, record)
        except InferenceError as error:
            core.end(record, error)
            call.fail(statuses.grpc_code(error), error.message, self._door.headers(record))
        except asyncio.CancelledError as error:
            cut = survived()
            core.end(record, cut or error)
            if cut is None:
                raise
            if not call.ended:
                call.fail(statuses.grpc_code(cut), cut.message, self._door.headers(record))
        except Exception as error:
            core.end(record, CallerError(error.message) if isinstance(error, GrpcError) else error)
            raise

    def _other(self, call: GrpcCall) -> Method | None:
        return next((method for name, method in self._others.items() if name in call.metadata), None)

    def _authenticate(self, call: GrpcCall, record: Record) -> Principal:
        token = bearer(call.metadata.get("authorization"), call.metadata.get("x-api-key"))
        return self._door.principal(token, call.peer_certificate if token is None else None, record)


def respond(door: Door, call: GrpcCall, record: Record, answer: Any) -> None:
    """End the exchange with a response of the gateway's own."""
    door.core.end(record)
    call.reply(answer.SerializeToString(), door.headers(record))


def time_left(call: GrpcCall) -> float | None:
    """Seconds until the client's deadline; None without a deadline."""
    return None if call.deadline is None else max(0.0, call.deadline - asyncio.get_running_loop().time())


def read(kind: Any, message: bytes) -> Any:
    """Decode a client's message. Raises `CallerError`."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise CallerError(f"The message is not a {kind.DESCRIPTOR.name}.", code="invalid_message") from None

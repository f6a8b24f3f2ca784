"""Apps over gRPC: TorchServe's service, and any service of an app that the call's metadata names."""

import re
from collections.abc import Callable

from adapters.base import Answer
from adapters.errors import CallerError, Unsupported
from adapters.http2.call import GrpcCall
from adapters.requests import AppRequest
from adapters.wire import torchserve
from gateway.auth.keys import Principal
from gateway.fronts import tensors
from gateway.fronts.door import Door
from gateway.fronts.grpc import rpcs
from gateway.fronts.rights import GRPC_APPLICATION
from gateway.telemetry import Record

APPLICATION = "application"
"""The metadata in which Ray Serve's clients name an application: here, the model."""
PROTOBUF = "application/x-protobuf"
_METHOD = re.compile(r"/(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*/[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
Encode = Callable[[bytes], bytes]


class GrpcAppsFront:
    """The front of apps. `methods` are selected by path; `named` handles other calls whose metadata names a model."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._core = door.core
        predictions = (torchserve.PREDICTIONS.decode(), torchserve.STREAM_PREDICTIONS.decode())
        self.methods = rpcs.methods_of(dict.fromkeys(predictions, self._predict))
        self.named = rpcs.methods_of({GRPC_APPLICATION: self._call})[GRPC_APPLICATION]

    async def _predict(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        prediction = torchserve.decode_request(await call.unary())
        request = self._request(
            call,
            prediction.model,
            prediction.version,
            path="/predictions",
            body=prediction.body,
            stream=call.path.encode() == torchserve.STREAM_PREDICTIONS,
            repeatable=True,
        )
        answer = await self._core.handle(principal, request, call.metadata, record)
        await self._reply(call, record, answer, torchserve.encode_response)

    async def _call(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        """Forward a message unchanged, and the messages of the answer, a single one or a stream."""
        if not _METHOD.fullmatch(call.path):
            raise CallerError("An app over gRPC is called as /package.Service/Method.", code="bad_path")
        request = self._request(
            call,
            call.metadata[APPLICATION],
            "",
            path=call.path,
            body=await call.unary(),
            content_type=PROTOBUF,
            stream=True,
            repeatable=False,
        )
        answer = await self._core.handle(principal, request, call.metadata, record)
        if answer.content_type != PROTOBUF:
            await answer.aclose()
            raise Unsupported(f"The servers of `{answer.routed(request).model[:128]}` do not speak gRPC.")
        await self._reply(call, record, answer, bytes)

    def _request(
        self,
        call: GrpcCall,
        name: str,
        version: str,
        *,
        path: str,
        body: bytes,
        content_type: str = "",
        stream: bool,
        repeatable: bool,
    ) -> AppRequest:
        model, version = tensors.named(self._core.snapshot, name, version)
        return AppRequest(
            model=model,
            version=version,
            path=path,
            content_type=content_type,
            body=body,
            size=len(body),
            stream=stream,
            repeatable=repeatable,
            timeout=rpcs.time_left(call),
        )

    async def _reply(self, call: GrpcCall, record: Record, answer: Answer, encode: Encode) -> None:
        """Send the answer. A failure after the first message is reported in the status of the call."""
        try:
            if answer.status >= 400:
                raise CallerError(f"The app answered with status {answer.status}.", code="app_refused")
            if answer.body is not None:
                call.reply(encode(answer.body), [*self._door.headers(record), *answer.headers])
                return
            async for piece in answer:
                await call.write(encode(piece))
            call.finish([*self._door.headers(record), *answer.headers])
        finally:
            await answer.aclose()

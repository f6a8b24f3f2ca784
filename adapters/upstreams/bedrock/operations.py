"""Requests to the operations of Bedrock's models."""

from adapters.call import Call
from adapters.errors import InferenceError
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import Headers, encode_fields
from adapters.types import Deadline
from adapters.upstreams import health
from adapters.upstreams.failed_status import error_body, is_answer, retry_after
from adapters.wire import error_table
from adapters.wire.bedrock import errors
from adapters.wire.bedrock.models import Operation, path_of

_HEAD = [("user-agent", "headrace"), ("content-type", "application/json")]


class Operations:
    """The operations of one endpoint. `model` is its own name of the model, if clients use another name."""

    def __init__(self, client: Client, model: str | None) -> None:
        self._client = client
        self._model = model
        self._base = client.base_path.encode()
        self._fields = encode_fields([*_HEAD, ("accept", "application/json, application/vnd.amazon.eventstream")])
        self._paths: dict[Operation, bytes] = {}

    def model(self, requested: str) -> str:
        """Bedrock's name of a requested model."""
        return requested if self._model is None else self._model

    async def post(self, operation: Operation, requested: str, body: bytes, call: Call) -> ClientResponse:
        """Return a response with a status of an answer; raise the typed error of any other status."""
        fields = self._fields + encode_fields(call.fields) if call.fields else self._fields
        target = self._target(operation, requested)
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if is_answer(response.status):
            return response
        failure = await _error_of(response)
        if self._model is None:
            failure = error_table.by_client(failure, response.status, requested)
        raise failure

    def _target(self, operation: Operation, requested: str) -> bytes:
        if self._model is None:
            return self._base + path_of(requested, operation)
        if (path := self._paths.get(operation)) is None:
            path = self._paths[operation] = self._base + path_of(self._model, operation)
        return path

    async def probe(self, timeout: float) -> None:
        """Check that the endpoint answers as Bedrock, and accepts the credential if the model is configured.

        Bedrock has no path for health. A request without messages is refused before it costs anything.
        """
        deadline = Deadline(self._client.now() + timeout, timeout, timeout)
        target = self._target("converse", self._model or "headrace.probe")
        response = await self._client.request(b"POST", target, self._fields, b'{"messages":[]}', deadline)
        try:
            status, headers = response.status, response.headers
            await response.read(health.MAX_BODY)
        finally:
            response.close()
        if is_answer(status) or (status == 400 and headers.get(errors.TYPE_HEADER)):
            return
        if not (self._model is None and status == 404 and headers.get(errors.TYPE_HEADER)):
            raise health.ill(status)

    async def aclose(self) -> None:
        await self._client.aclose()


def retry_seconds(headers: Headers) -> float | None:
    """The seconds that a refusal demands: Bedrock's own header has milliseconds."""
    given = headers.get("x-amz-retry-after")
    if given is not None and len(given) <= 9 and given.isascii() and given.isdigit():
        return int(given) / 1000
    return retry_after(headers)


async def _error_of(response: ClientResponse) -> InferenceError:
    body = await error_body(response)
    reported = errors.decode(response.headers.get(errors.TYPE_HEADER), body)
    return error_table.judged(response.status, reported, retry_seconds(response.headers))

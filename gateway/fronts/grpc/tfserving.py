"""TensorFlow Serving's front over gRPC, over models of tensors: `PredictionService`, and status in `ModelService`.

A prediction is forwarded unchanged if the upstream speaks the same wire. Examples for classification and regression are
transcoded to the body of TensorFlow Serving's REST API.
"""

from adapters import offload
from adapters.assembly import join
from adapters.base import Answer
from adapters.errors import BackendError, CallerError, Forbidden, Unsupported
from adapters.http2.call import GrpcCall
from adapters.offload import codecs
from adapters.requests import InferRequest
from adapters.types import Verb
from adapters.upstreams.inferred import decode
from adapters.wire import proto_json
from adapters.wire.decoding import whole_number
from adapters.wire.protos.tfserving import MODEL, PREDICTION, serving
from adapters.wire.tfserving import (
    examples as tfserving_examples,
)
from adapters.wire.tfserving import (
    predict as tfserving_predict,
)
from adapters.wire.tfserving import predict_v1_responses, predict_v1_view
from adapters.wire.tfserving import predict_view as tfserving_view
from gateway.auth.keys import Principal
from gateway.fronts import tensors
from gateway.fronts.door import Door
from gateway.fronts.grpc import rpcs
from gateway.fronts.metadata import Metadata
from gateway.fronts.states import states
from gateway.telemetry import Record

_SIGNATURES = "signature_def"
_UNAVAILABLE = 14
_ALONE = "Send each task in a separate request, with Classify or Regress."
_CONFIGURED = "The gateway's configuration defines its models. Send this request to the server itself."


class TfServingFront:
    """`tensorflow.serving.PredictionService` and `ModelService`."""

    def __init__(self, door: Door, metadata: Metadata) -> None:
        self._door = door
        self._core = door.core
        self._metadata = metadata
        answers: dict[str, rpcs.Answer] = {
            PREDICTION["Predict"].path: self._predict,
            PREDICTION["Classify"].path: self._classify,
            PREDICTION["Regress"].path: self._regress,
            PREDICTION["MultiInference"].path: _multi_inference,
            PREDICTION["GetModelMetadata"].path: self._described,
            MODEL["GetModelStatus"].path: self._status,
            MODEL["HandleReloadConfigRequest"].path: _reload,
        }
        self.methods = rpcs.methods_of(answers)

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _predict(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        message = await call.unary()
        summary = await offload.run(len(message), tfserving_view.summarize, message)
        model, version = tensors.named(self._core.snapshot, summary.model, summary.version)
        if version != summary.version:
            message = await offload.run(len(message), tfserving_view.with_version, message, version)
        timeout = rpcs.time_left(call)
        request = tfserving_view.request_of(summary, message, model=model, version=version, timeout=timeout)
        answer = await self._answer(principal, call, record, request)
        if answer.form.wire == "tfserving-grpc":
            encoded = await join((answer.body or b"", tfserving_view.renamed("PredictResponse", summary.model)))
        else:
            response = await decode(answer)
            size = sum([len(tensor.data) for tensor in response.outputs])
            encoded = await offload.run(
                size, tfserving_predict.encode_response, response, summary.model, summary.signature
            )
        self._reply(call, record, answer, encoded)

    async def _classify(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        await self._of_examples(principal, call, record, "Classify")

    async def _regress(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        await self._of_examples(principal, call, record, "Regress")

    async def _of_examples(self, principal: Principal, call: GrpcCall, record: Record, name: str) -> None:
        verb: Verb = "classify" if name == "Classify" else "regress"
        message = await call.unary()
        encoded, body = await offload.run(len(message), tfserving_examples.decode_request, name, message)
        spec = serving.ModelSpec.FromString(encoded)
        model, version = tensors.named(self._core.snapshot, spec.name, tfserving_predict.version_of(spec))
        look = await offload.run(len(body), predict_v1_view.summarize, body)
        request = predict_v1_view.request_of(
            body, model=model, version=version, verb=verb, look=look, timeout=rpcs.time_left(call)
        )
        answer = await self._answer(principal, call, record, request)
        outcome = answer.body or b""
        if answer.form.wire != "predict-v1":
            outcome = await codecs.encode_predict_v1(await decode(answer), verb, by_row=True)
        response = await offload.run(len(outcome), tfserving_examples.encode_response, name, encoded, outcome)
        self._reply(call, record, answer, response)

    async def _answer(self, principal: Principal, call: GrpcCall, record: Record, request: InferRequest) -> Answer:
        answer = await self._core.handle(principal, request, call.metadata, record)
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        return answer

    def _reply(self, call: GrpcCall, record: Record, answer: Answer, message: bytes) -> None:
        call.reply(message, [*self._door.headers(record), *answer.headers])

    # ── metadata and status ───────────────────────────────────────────────────────────────────────────

    async def _described(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        message = rpcs.read(serving.GetModelMetadataRequest, await call.unary())
        if list(message.metadata_field) != [_SIGNATURES]:
            raise CallerError(f"Request one `metadata_field`, `{_SIGNATURES}`.", param="metadata_field")
        spec = message.model_spec
        model, version = tensors.named(self._core.snapshot, spec.name, tfserving_predict.version_of(spec))
        metadata = await self._metadata.of(principal, model, version, call.metadata)
        described = {_SIGNATURES: predict_v1_responses.signatures_of(metadata)}
        signatures = proto_json.fill(serving.SignatureDefMap(), described)
        response = serving.GetModelMetadataResponse()
        newest = version or max(metadata.versions, key=predict_v1_responses.number, default="")
        tfserving_predict.put_spec(response.model_spec, spec.name, newest)
        packed = response.metadata[_SIGNATURES]
        packed.type_url = f"type.googleapis.com/{signatures.DESCRIPTOR.full_name}"
        packed.value = signatures.SerializeToString()
        rpcs.respond(self._door, call, record, response)

    async def _status(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        """The status of each version. A model whose server reports no versions has one version without a number."""
        message = rpcs.read(serving.GetModelStatusRequest, await call.unary())
        spec = message.model_spec
        model, version = tensors.named(self._core.snapshot, spec.name, tfserving_predict.version_of(spec))
        standing, versions = await states(self._core, self._metadata, principal, call.metadata, record, model, version)
        response = serving.GetModelStatusResponse()
        for number in [each for text in versions if (each := whole_number(text)) is not None] or [0]:
            one = response.model_version_status.add(version=number)
            one.state = one.State.Value(predict_v1_responses.tfserving_state(standing.state))
            one.status.error_code = 0 if standing.ready else _UNAVAILABLE
            one.status.error_message = standing.reason
        rpcs.respond(self._door, call, record, response)


async def _multi_inference(principal: Principal, call: GrpcCall, record: Record) -> None:
    raise Unsupported(_ALONE)


async def _reload(principal: Principal, call: GrpcCall, record: Record) -> None:
    raise Forbidden(_CONFIGURED).because("operators_only")

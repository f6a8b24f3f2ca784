"""Requests to models: the input of a client, in any wire format. No I/O.

A request is immutable. A codec derives another request from it: `codec.rename(request, "other")`. The parts that only
one wire has are in the payload of the request, beside the codec of that wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.paths import check_path
from adapters.types import Feature, InferKind, ModelPart, Order, TensorWire

if TYPE_CHECKING:
    from adapters.errors import InferenceError
    from adapters.ignored_fields import IgnoredFields
    from adapters.tensors import Data, Inference


# Payloads: the parts of a request that only its own wire has. Each wire defines its payload beside its codec.

Fields = dict[str, Raw]
"""The fields of a JSON object, each undecoded."""


class Payload(msgspec.Struct):
    """The parts of a request that only its wire has, and a cache of the values decoded from them on demand.

    Equal requests may share a payload. Only its cache changes.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class TextPayload(Payload):
    """The body of a request for text, as the fields of OpenAI's API."""

    features: dict[Feature, bool] | None = None
    """The features that have been evaluated."""
    is_translated: bool = False
    """Whether the fields are not the client's own, because it speaks another protocol."""

    @property
    def fields(self) -> Fields:
        raise NotImplementedError

    def report(self, ignored: IgnoredFields) -> None:
        """Record the parts of the body that `fields` do not express. Raises `CallerError` on a strict route."""

    def with_fields(self, fields: Fields) -> TextPayload:
        """Return a payload with other fields."""
        raise NotImplementedError


class TensorPayload(Payload):
    """The body of an inference."""

    wire: ClassVar[TensorWire]

    body: bytes
    """The message of gRPC, which contains the client's names, or the HTTP body."""
    decoded: Inference | None = None
    rows: int | None = None
    """The number of rows, if only decoding reveals it."""

    @property
    def plain(self) -> bytes:
        """The body without compression."""
        return self.body

    def undecoded(self) -> TensorPayload:
        """Return the payload without compression and with an empty cache, for a worker process."""
        return replace(self, decoded=None, rows=None)


R = TypeVar("R", bound="ModelRequest")
G = TypeVar("G", bound="GenerateRequest")


class Codec:
    """The codec of a request's wire, for the parts that are decoded only on demand.

    This base class is the codec of a request without a wire.
    """

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return False

    def rename(self, request: R, model: str) -> R:
        """Return the request with another name of the model."""
        return replace(request, model=model)

    def fields(self, request: ModelRequest) -> Fields:
        """The encoded fields that a route may rewrite: the fields of the body, or the parameters of an inference."""
        return {}

    def rewrite(self, request: R, fields: Fields) -> R:
        """Return the request with other fields."""
        return request

    def accepts(self, request: ModelRequest, name: str) -> bool:
        """Whether the operation has a field of this name, so that a route may add the field."""
        return True

    def separate(self, request: R, tenant: str) -> R:
        """Return the request with an id of its sequence that no other tenant can use."""
        return request

    def inference(self, request: InferRequest) -> Inference:
        """The decoded request. Raises `CallerError`."""
        raise NotImplementedError

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """Parts that are equal for two requests only if no upstream can distinguish them."""
        return ()

    def is_deterministic(self, request: ModelRequest) -> bool:
        """Whether the same request always has the same response."""
        return False


NO_WIRE = Codec()


class InvalidFields(NamedTuple):
    """Invalid fields that the decoder left out, because a route of the model may drop them."""

    names: tuple[frozenset[str], ...]
    """Each field with all of its names."""
    error: InferenceError
    """The error of the first invalid field."""

    def check(self, dropped: frozenset[str]) -> None:
        """Raise the error if the route does not drop all of the fields."""
        if not all(names & dropped for names in self.names):
            raise self.error


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model in any wire format, with the fields that routing and limits use.

    Fields that do not apply to a kind of request are empty: tensors have no prompt, and a chat has no rows.
    """

    operation: ClassVar[str]
    """The name of the operation in the access log."""
    composes: ClassVar[bool] = False
    """Whether the answer is a text that a model writes, which may take minutes and costs by its length."""

    model: str
    version: str = ""
    """The version of the model that the server receives; empty for the server's choice."""
    stream: bool = False
    prompt_tokens: int = 0
    """An estimate; the answer reports the exact number."""
    max_tokens: int | None = None
    n: int = 1
    rows: int = 0
    """For tensors: an estimate of the first dimension."""
    size: int = 0
    """The size of the client's body in bytes."""
    user: str | None = None
    prompt: memoryview = memoryview(b"")
    """The encoded value of the prompt, as received."""
    timeout: float | None = None
    """The client's timeout in seconds; None if the client sets none."""
    sequence: str = ""
    """The id of a sequence of requests. One endpoint has the state of the sequence and answers all of its requests."""
    repeatable: bool = True
    """Whether the operation may be repeated after a server may have begun to process it. A route may allow it too."""
    ignored: tuple[str, ...] = ()
    """Fields without effect that the decoder left out, under the names of a chat's fields."""
    invalid: InvalidFields | None = None
    codec: Codec = NO_WIRE

    def __repr__(self) -> str:
        """Without the body: a request may be printed in an error."""
        return f"{type(self).__name__}({self.model!r})"

    @property
    def shareable(self) -> bool:
        """Whether identical requests may share one answer."""
        return True

    @property
    def row_count(self) -> int:
        """The number of rows: `rows`, or the exact number after an inference has been decoded."""
        return self.rows

    def uses_feature(self, feature: Feature) -> bool:
        """Whether the request requires a feature."""
        return self.codec.uses_feature(self, feature)


class GenerateRequest(ModelRequest, frozen=True, kw_only=True):
    """A request to generate or embed text: an adapter assembles the upstream's body from its fields."""

    path: ClassVar[str]
    answered: ClassVar[str] = "choices"
    """The key of the response that holds the results."""

    payload: TextPayload
    include_usage: bool = False
    """Whether the client requested usage at the end of its stream."""

    @property
    def fields(self) -> Fields:
        """The encoded top-level values of the body. Raises `CallerError` if the body has no equivalent."""
        return self.payload.fields

    def with_fields(self: G, fields: Fields) -> G:
        """Return the request with other fields of the body."""
        return self if fields is self.payload.fields else replace(self, payload=self.payload.with_fields(fields))

    def uses_feature(self, feature: Feature) -> bool:
        """Whether the request requires a feature. The result is cached."""
        payload = self.payload
        if payload.features is None:
            payload.features = {}
        if feature not in payload.features:
            payload.features[feature] = self.codec.uses_feature(self, feature)
        return payload.features[feature]


class ChatRequest(GenerateRequest, frozen=True, kw_only=True):
    """`/v1/chat/completions`."""

    path: ClassVar[str] = "/chat/completions"
    operation: ClassVar[str] = "chat"
    composes: ClassVar[bool] = True


class ResponsesRequest(GenerateRequest, frozen=True, kw_only=True):
    """`/v1/responses`, for servers that support it. For all others it becomes a `ChatRequest`."""

    path: ClassVar[str] = "/responses"
    operation: ClassVar[str] = "chat"
    composes: ClassVar[bool] = True
    answered: ClassVar[str] = "output"


class CompletionRequest(GenerateRequest, frozen=True, kw_only=True):
    """`/v1/completions`."""

    path: ClassVar[str] = "/completions"
    operation: ClassVar[str] = "text_completion"
    composes: ClassVar[bool] = True


class EmbeddingRequest(GenerateRequest, frozen=True, kw_only=True):
    """`/v1/embeddings`."""

    path: ClassVar[str] = "/embeddings"
    operation: ClassVar[str] = "embeddings"
    answered: ClassVar[str] = "data"

    n: int = 0


class InferRequest(ModelRequest, frozen=True, kw_only=True):
    """A request with tensors: of the Open Inference Protocol, of KServe's v1 and TensorFlow Serving's REST
    (`predict-v1`), or of TensorFlow Serving's gRPC.

    The body is forwarded unchanged if the upstream uses the same wire and the same name of the model; otherwise it is
    decoded into an `inference`. `model` and `version` take precedence over the names inside the body.
    """

    operation: ClassVar[str] = "infer"

    n: int = 0
    kind: InferKind = "infer"
    starts: bool = False
    """The request starts its sequence anew."""
    ends: bool = False
    """The request ends its sequence."""
    payload: TensorPayload

    @property
    def wire(self) -> TensorWire:
        return self.payload.wire

    @property
    def shareable(self) -> bool:
        return not self.sequence and self.kind in ("infer", "generate")

    @property
    def row_count(self) -> int:
        return self.rows if self.payload.rows is None else self.payload.rows

    @property
    def inference(self) -> Inference:
        """The request, decoded on the first access. Raises `CallerError`."""
        payload = self.payload
        if payload.decoded is None:
            payload.decoded = self.codec.inference(self)
        return payload.decoded


class ExplainRequest(InferRequest, frozen=True, kw_only=True):
    """A request with the tensors of an inference, for an explanation of its answer.

    `kind` is `explain`, or `infer` for a model that is an explainer: then its prediction is the explanation.
    """

    operation: ClassVar[str] = "explain"

    kind: InferKind = "explain"


class ModelQuery(ModelRequest, frozen=True, kw_only=True):
    """A query about a tensor model, which its server answers. It is routed like an inference."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    about: ModelPart = "metadata"

    @property
    def shareable(self) -> bool:
        return False


class ModelOrder(ModelRequest, frozen=True, kw_only=True):
    """An operator's order to the servers of a model."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    order: Order = "load"
    body: bytes = b""
    """The body of the HTTP protocol: a configuration, files, or the option to unload dependents."""

    @property
    def shareable(self) -> bool:
        return False


class AppRequest(ModelRequest, frozen=True, kw_only=True):
    """A request to an HTTP app behind a model's name. The gateway does not decode its bodies.

    The client receives the app's own status from 200 to 499, except 429. A status of 429 or of 500 and above is a
    failure that may be retried at another endpoint.
    """

    operation: ClassVar[str] = "app"

    n: int = 0
    method: str = "POST"
    path: str = ""
    """The received path below the app's root: empty or with a leading `/`, percent-encoded, without `.` and `..`."""
    query: str = ""
    """The query without its `?`."""
    content_type: str = ""
    accept: str = ""
    encoding: str = ""
    """The `content-encoding` of the body."""
    body: bytes = b""
    stale: bool = False
    """Whether `body` has another name of the model than the request. Adapters replace the name when they send the body:
    a rename must not copy a large body on the event loop."""
    own_headers: tuple[tuple[str, str], ...] = ()
    """Headers of a request that the gateway itself makes."""

    def __post_init__(self) -> None:
        """Check the path. Raises `CallerError` if it leaves the app's root: no front door can create such a request."""
        check_path(self.path, self.query)

    @property
    def shareable(self) -> bool:
        return False


class RankingRequest(AppRequest, frozen=True, kw_only=True):
    """`/v1/rerank` and its other paths: documents in the order of their relevance. Its rows are documents.

    The body is forwarded, and its tokens are counted.
    """

    operation: ClassVar[str] = "rerank"


class ScoringRequest(RankingRequest, frozen=True, kw_only=True):
    """`/score`: the similarity of pairs, which are its rows."""

    operation: ClassVar[str] = "score"


class ClassifyingRequest(RankingRequest, frozen=True, kw_only=True):
    """`/classify`: the labels of texts, which are its rows."""

    operation: ClassVar[str] = "classify"

"""The domain's nouns: what was requested and what it cost. No I/O, no protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from msgspec import Raw

from adapters.paths import check_path
from adapters.wire.openai.ignored_fields import IgnoredFields

if TYPE_CHECKING:
    from adapters.errors import InferenceError
    from adapters.tensors import Data, Inference

Feature = Literal["tools", "json_schema", "vision"]
"""A capability of a model beside text that a request may require."""
TensorWire = Literal["oip-http", "oip-grpc", "predict-v1", "tfserving-grpc"]
Wire = Literal["openai", "oip-http", "oip-grpc", "predict-v1", "tfserving-grpc", "app", "anthropic"]
InferKind = Literal["infer", "infer_stream", "generate", "generate_stream"]
"""One response or a stream of responses, for tensors or (`oip-http` only) for a prompt in a JSON object."""
Verb = Literal["predict", "explain", "classify", "regress"]
"""Of `predict-v1`: the last word of its path."""
ModelPart = Literal["metadata", "ready", "config", "stats"]
"""What a query may concern. Responses are JSON, in the protocol's form over HTTP, whatever the upstream speaks."""
Order = Literal["load", "unload"]
ERROR_CODE = "x-headrace-error"
"""The field with the stable code of an error: a header, over gRPC a trailer, and in a stream a parameter."""
DEVICE_MS = "headrace-device-ms"
"""The header, or gRPC's trailer, in which our own runtime reports for how long a request occupied its device."""


@dataclass(slots=True)
class Usage:
    """The cost of an answer so far. `exact` is False for our own count, True for the server's."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    exact: bool = False
    rows: int = 0
    """Of tensors: the batch's first dimension."""
    bytes: int = 0
    """Of the answer's body, as the upstream sent it."""
    device_ms: float = 0
    """Time on the model's device, where the server reports it."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Codec:
    """The codec of a request's wire, for the parts that are decoded only when they are required.

    This class is the codec of a request that came by no wire.
    """

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return False

    def rename(self, request: ModelRequest, model: str) -> None:
        """Change the name of the model."""
        request.model = model

    def fields(self, request: ModelRequest) -> dict[str, Raw]:
        """The fields that a route may rewrite, still encoded: those of the body, or an inference's parameters."""
        return {}

    def rewrite(self, request: ModelRequest, fields: dict[str, Raw]) -> None:
        """Replace the fields."""

    def accepts(self, request: ModelRequest, name: str) -> bool:
        """Whether the request's operation has a field of this name, so that a route may add the field."""
        return True

    def separate(self, request: ModelRequest, tenant: str) -> None:
        """Replace the id of the sequence by one that no other tenant can have."""

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


@dataclass(slots=True, kw_only=True)
class ModelRequest:
    """A request to a model in any wire format, as far as routing and limits read it.

    Fields that its kind does not have are empty: tensors have no prompt, and a chat has no rows.
    """

    operation: ClassVar[str]
    """As the access log names it."""

    model: str
    version: str = ""
    """The version of the model that the server receives; empty for the server's choice."""
    stream: bool = False
    prompt_tokens: int = 0
    """An estimate; the truth comes with the answer."""
    max_tokens: int | None = None
    n: int = 1
    rows: int = 0
    """Of tensors: the first dimension, an estimate too."""
    size: int = 0
    """Bytes of the body."""
    user: str | None = None
    prompt: memoryview = field(default=memoryview(b""), repr=False)
    """The prompt's own value, as the client sent it."""
    timeout: float | None = None
    """Seconds that the client allows; None where it does not say."""
    sequence: str = ""
    """The id of a sequence of requests. One endpoint has the state of the sequence and answers all of its requests."""
    codec: Codec = field(default=NO_WIRE, repr=False)
    hints: IgnoredFields = field(default_factory=IgnoredFields)
    """Fields that the model does not support. Copies of a request share them."""
    removed: tuple[frozenset[str], ...] = ()
    """Fields that were not valid and that a route may drop, each under all of its names."""
    refusal: InferenceError | None = None
    """The error of the first of them, for a route that keeps it."""
    repeatable: bool = True
    """Whether it may be sent again after a server may have started it."""
    _features: dict[Feature, bool] | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        """Whether identical requests may share one answer."""
        return True

    def again_after(self, error: InferenceError) -> bool:
        """Whether the request may be sent again after a failure."""
        return self.repeatable or not error.delivered

    def uses_feature(self, feature: Feature) -> bool:
        """Whether the request requires a feature. The result is computed once."""
        known = self._features
        if known is None:
            known = self._features = {}
        if feature not in known:
            known[feature] = self.codec.uses_feature(self, feature)
        return known[feature]


@dataclass(slots=True, kw_only=True)
class GenerateRequest(ModelRequest):
    """A request to generate or embed text, with OpenAI's body.

    `fields` are the top-level values of the body, still encoded: an adapter splices the upstream's body from them.
    """

    path: ClassVar[str]
    answered: ClassVar[str] = "choices"
    """The key of the response that holds the results."""

    fields: dict[str, Raw] = field(repr=False)
    include_usage: bool = False
    """Whether the client requested usage at the end of its stream."""


@dataclass(slots=True, kw_only=True)
class ChatRequest(GenerateRequest):
    """`/v1/chat/completions`."""

    path: ClassVar[str] = "/chat/completions"
    operation: ClassVar[str] = "chat"


@dataclass(slots=True, kw_only=True)
class ResponsesRequest(GenerateRequest):
    """`/v1/responses`, for servers that support it. For all others it becomes a `ChatRequest`."""

    path: ClassVar[str] = "/responses"
    operation: ClassVar[str] = "chat"
    answered: ClassVar[str] = "output"


@dataclass(slots=True, kw_only=True)
class CompletionRequest(GenerateRequest):
    """`/v1/completions`."""

    path: ClassVar[str] = "/completions"
    operation: ClassVar[str] = "text_completion"


@dataclass(slots=True, kw_only=True)
class EmbeddingRequest(GenerateRequest):
    """`/v1/embeddings`."""

    path: ClassVar[str] = "/embeddings"
    operation: ClassVar[str] = "embeddings"
    answered: ClassVar[str] = "data"

    n: int = 0


@dataclass(slots=True, kw_only=True)
class InferRequest(ModelRequest):
    """Tensors in, tensors out: a request of the Open Inference Protocol, or (`predict-v1`) of KServe's v1 and of
    TensorFlow Serving's REST, or of its gRPC, as its client wrote it.

    `body` is forwarded unchanged where the upstream speaks the same wire and has the model under the same name; else it
    is decoded into an `inference`. `model` and `version` count, not the names inside the body.
    """

    operation: ClassVar[str] = "infer"

    n: int = 0
    kind: InferKind = "infer"
    wire: TensorWire
    body: bytes = field(repr=False)
    """Of gRPC the message, which holds the names that the client wrote; of others what followed the head."""
    header_length: int | None = None
    """Of `oip-http`: bytes of JSON before the tensors' own; None where all is JSON, 0 where nothing is."""
    encoding: str = ""
    """How `body` is compressed, as the client's Content-Encoding names it."""
    opened: bytes = field(default=b"", repr=False)
    """`body` decompressed, where it is compressed."""
    accepts: str = ""
    """The client's Accept-Encoding."""
    starts: bool = False
    """The request starts its sequence anew."""
    ends: bool = False
    """The request ends its sequence."""
    verb: Verb = "predict"
    by_row: bool = True
    """Of `predict-v1`: whether the response has one object a row, as the request has."""
    explainer: bool = False
    """The model explains the responses of another one: each response is an explanation."""
    _inference: Inference | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        return not self.sequence and self.kind in ("infer", "generate")

    @property
    def inference(self) -> Inference:
        """The decoded request. It is decoded once, on the first access. Raises `CallerError`."""
        if self._inference is None:
            self._inference = self.codec.inference(self)
        return self._inference

    @inference.setter
    def inference(self, inference: Inference) -> None:
        self._inference = inference

    @property
    def is_decoded(self) -> bool:
        """Whether `inference` has been decoded."""
        return self._inference is not None

    @property
    def plain(self) -> bytes:
        """The decompressed body."""
        return self.opened or self.body

    def write(self, body: bytes, header_length: int | None = None) -> None:
        """Replace the body by another one, which is not compressed."""
        self.body, self.header_length = body, header_length
        self.encoding, self.opened, self._inference = "", b"", None


@dataclass(slots=True, kw_only=True)
class ModelQuery(ModelRequest):
    """A query about a model of tensors, which its server answers. It is routed as an inference is."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    about: ModelPart = "metadata"

    @property
    def shareable(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class ModelOrder(ModelRequest):
    """An operator's order to the servers of a model."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    order: Order = "load"
    body: bytes = field(default=b"", repr=False)
    """The protocol's body over HTTP: a configuration, files, or whether dependents are unloaded too."""

    @property
    def shareable(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class AppRequest(ModelRequest):
    """A request to an HTTP app behind a model's name. The gateway does not read its bodies.

    The client receives the app's own status from 200 to 499, except 429. A 429 and every status from 500 on is a
    failure, which may be retried at another endpoint.
    """

    operation: ClassVar[str] = "app"

    n: int = 0
    method: str = "POST"
    path: str = ""
    """Below the app's root: empty, or from a `/` on. Percent-encoded as it came, and without `.` and `..`."""
    query: str = ""
    """Without its `?`."""
    content_type: str = ""
    accept: str = ""
    encoding: str = ""
    """The `content-encoding` of its body."""
    body: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        """Raises `CallerError` for a path that leaves the app's root: no door can make such a request."""
        check_path(self.path, self.query)

    @property
    def shareable(self) -> bool:
        return False


class Form(NamedTuple):
    """The wire format of an answer's bytes."""

    wire: Wire = "openai"
    header_length: int | None = None
    """Of `oip-http`: bytes of JSON before the tensors' own; None where all is JSON."""
    encoding: str = ""
    """The compression, as Content-Encoding names it."""


OPENAI = Form()
OIP_JSON = Form("oip-http")
OIP_GRPC = Form("oip-grpc")
PREDICT_V1 = Form("predict-v1")
TFSERVING_GRPC = Form("tfserving-grpc")
APP = Form("app")
"""Any format of the app's own."""
ANTHROPIC = Form("anthropic")


class Deadline(NamedTuple):
    """The end of every wait of one call. `at` is absolute loop time; the others are seconds."""

    at: float
    first_byte: float
    idle: float

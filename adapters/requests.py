"""Requests to models: the input of a client, in any wire format. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from msgspec import Raw

from adapters.paths import check_path
from adapters.types import Feature, InferKind, ModelPart, Order, TensorWire, Verb
from adapters.wire.openai.ignored_fields import IgnoredFields

if TYPE_CHECKING:
    from adapters.errors import InferenceError
    from adapters.tensors import Data, Inference


class Codec:
    """The codec of a request's wire, for the parts that are decoded only on demand.

    This base class is the codec of a request without a wire.
    """

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return False

    def rename(self, request: ModelRequest, model: str) -> None:
        """Change the name of the model."""
        request.model = model

    def fields(self, request: ModelRequest) -> dict[str, Raw]:
        """The encoded fields that a route may rewrite: the fields of the body, or the parameters of an inference."""
        return {}

    def rewrite(self, request: ModelRequest, fields: dict[str, Raw]) -> None:
        """Replace the fields."""

    def accepts(self, request: ModelRequest, name: str) -> bool:
        """Whether the operation has a field of this name, so that a route may add the field."""
        return True

    def separate(self, request: ModelRequest, tenant: str) -> None:
        """Replace the id of the sequence by an id that no other tenant can use."""

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
    """A request to a model in any wire format, with the fields that routing and limits use.

    Fields that do not apply to a kind of request are empty: tensors have no prompt, and a chat has no rows.
    """

    operation: ClassVar[str]
    """The name of the operation in the access log."""

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
    """The size of the body in bytes."""
    user: str | None = None
    prompt: memoryview = field(default=memoryview(b""), repr=False)
    """The encoded value of the prompt, as received."""
    timeout: float | None = None
    """The client's timeout in seconds; None if the client sets none."""
    sequence: str = ""
    """The id of a sequence of requests. One endpoint has the state of the sequence and answers all of its requests."""
    codec: Codec = field(default=NO_WIRE, repr=False)
    hints: IgnoredFields = field(default_factory=IgnoredFields)
    """Fields that the model does not support. Copies of a request share them."""
    removed: tuple[frozenset[str], ...] = ()
    """Invalid fields that a route may drop, each with all of its names."""
    refusal: InferenceError | None = None
    """The error of the first invalid field, for a route that does not drop it."""
    repeatable: bool = True
    """Whether the request may be sent again after a server may have begun to process it."""
    _features: dict[Feature, bool] | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        """Whether identical requests may share one answer."""
        return True

    def again_after(self, error: InferenceError) -> bool:
        """Whether the request may be sent again after a failure."""
        return self.repeatable or not error.delivered

    def uses_feature(self, feature: Feature) -> bool:
        """Whether the request requires a feature. The result is cached."""
        known = self._features
        if known is None:
            known = self._features = {}
        if feature not in known:
            known[feature] = self.codec.uses_feature(self, feature)
        return known[feature]


@dataclass(slots=True, kw_only=True)
class GenerateRequest(ModelRequest):
    """A request to generate or embed text, with OpenAI's body.

    `fields` are the encoded top-level values of the body: an adapter assembles the upstream's body from them.
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
    """A request with tensors: of the Open Inference Protocol, of KServe's v1 and TensorFlow Serving's REST
    (`predict-v1`), or of TensorFlow Serving's gRPC.

    `body` is forwarded unchanged if the upstream uses the same wire and the same name of the model; otherwise it is
    decoded into an `inference`. `model` and `version` take precedence over the names inside the body.
    """

    operation: ClassVar[str] = "infer"

    n: int = 0
    kind: InferKind = "infer"
    wire: TensorWire
    body: bytes = field(repr=False)
    """For gRPC the message, which contains the client's names; for other wires the HTTP body."""
    header_length: int | None = None
    """For `oip-http`: bytes of JSON before the binary tensors; None for JSON only, 0 for no JSON."""
    encoding: str = ""
    """The compression of `body`: the client's Content-Encoding."""
    opened: bytes = field(default=b"", repr=False)
    """The decompressed `body`, if it is compressed."""
    accepts: str = ""
    """The client's Accept-Encoding."""
    starts: bool = False
    """The request starts its sequence anew."""
    ends: bool = False
    """The request ends its sequence."""
    verb: Verb = "predict"
    by_row: bool = True
    """For `predict-v1`: whether request and response have one object for each row."""
    explainer: bool = False
    """Whether the model explains another model's responses: each response is an explanation."""
    _inference: Inference | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        return not self.sequence and self.kind in ("infer", "generate")

    @property
    def inference(self) -> Inference:
        """The request, decoded on the first access. Raises `CallerError`."""
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
        """Replace the body by an uncompressed body."""
        self.body, self.header_length = body, header_length
        self.encoding, self.opened, self._inference = "", b"", None


@dataclass(slots=True, kw_only=True)
class ModelQuery(ModelRequest):
    """A query about a tensor model, which its server answers. It is routed like an inference."""

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
    """The body of the HTTP protocol: a configuration, files, or the option to unload dependents."""

    @property
    def shareable(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class AppRequest(ModelRequest):
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
    body: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        """Check the path. Raises `CallerError` if it leaves the app's root: no front door can create such a request."""
        check_path(self.path, self.query)

    @property
    def shareable(self) -> bool:
        return False

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
"""What a request may ask of a model beside text."""
TensorWire = Literal["oip-http", "oip-grpc", "predict-v1", "tfserving-grpc"]
Wire = Literal["openai", "oip-http", "oip-grpc", "predict-v1", "tfserving-grpc", "app", "anthropic"]
InferKind = Literal["infer", "infer_stream", "generate", "generate_stream"]
"""One answer or a stream of them, to tensors or (`oip-http` only) to a prompt and what else a JSON object holds."""
Verb = Literal["predict", "explain", "classify", "regress"]
"""Of `predict-v1`: the last word of its path."""
ModelPart = Literal["metadata", "ready", "config", "stats"]
"""What may be asked about a model: answers are JSON, as the protocol has it over HTTP, whatever the upstream speaks."""
Order = Literal["load", "unload"]
ERROR_CODE = "x-headrace-error"
"""The field with the stable code of an error: a header, over gRPC a trailer, and in a stream a parameter."""
DEVICE_MS = "headrace-device-ms"
"""The header, or gRPC's trailer, by which our own runtime tells for how long a request kept its device busy."""


@dataclass(slots=True)
class Usage:
    """What an answer cost so far. `exact` is False while it is our own count and not the server's word."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    exact: bool = False
    rows: int = 0
    """Of tensors: the batch's first dimension."""
    bytes: int = 0
    """Of the answer's body, as the upstream sent it."""
    device_ms: float = 0
    """Of the model's device, where the server tells."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Codec:
    """The wire that a request came by: what of it is read, or read again, only when somebody wants to know.

    This one knows none, for a request that came by no wire.
    """

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return False

    def rename(self, request: ModelRequest, model: str) -> None:
        """Let it ask for its model by another name."""
        request.model = model

    def fields(self, request: ModelRequest) -> dict[str, Raw]:
        """What a route may rewrite: the body's own fields, or an inference's parameters; still encoded."""
        return {}

    def rewrite(self, request: ModelRequest, fields: dict[str, Raw]) -> None:
        """Put others in the place of its fields."""

    def accepts(self, request: ModelRequest, name: str) -> bool:
        """Whether the request's operation has a field of this name, so that a route may add the field."""
        return True

    def separate(self, request: ModelRequest, tenant: str) -> None:
        """Have the server know its sequence by a name that no other tenant's has, whatever they are called."""

    def inference(self, request: InferRequest) -> Inference:
        """The tensors and all else that it asks for. Raises `CallerError`."""
        raise NotImplementedError

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """Parts that are equal for two requests only if no upstream can distinguish them."""
        return ()

    def is_deterministic(self, request: ModelRequest) -> bool:
        """Whether asking again would be answered the same."""
        return False


NO_WIRE = Codec()


@dataclass(slots=True, kw_only=True)
class ModelRequest:
    """A request of a model, whatever it is written in, as far as routing and limits need to know it.

    What its kind does not have is nothing: tensors have no prompt, and a chat no rows.
    """

    operation: ClassVar[str]
    """As the access log names it."""

    model: str
    version: str = ""
    """Of the model, that the server is to know of; empty for the server's choice."""
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
    """Seconds that the client itself gives it, where it says."""
    sequence: str = ""
    """Of a request that is one of several: what they have in common. The endpoint that has the first keeps state
    for the others, so they go there too, and no other endpoint is ever asked in its place."""
    codec: Codec = field(default=NO_WIRE, repr=False)
    hints: IgnoredFields = field(default_factory=IgnoredFields)
    """Its fields that the model has no use for. Copies of a request share them."""
    removed: tuple[frozenset[str], ...] = ()
    """Fields that were not valid and that a route may drop, each under all of its names."""
    refusal: InferenceError | None = None
    """The error of the first of them, for a route that keeps it."""
    repeatable: bool = True
    """Whether it may be sent once more where a server may have begun on it."""
    _features: dict[Feature, bool] | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        """Whether one answer may serve all who ask the same."""
        return True

    def again_after(self, error: InferenceError) -> bool:
        """Whether it may be sent once more after a failure."""
        return self.repeatable or not error.delivered

    def uses_feature(self, feature: Feature) -> bool:
        """Found out when it is first wanted, and then remembered."""
        known = self._features
        if known is None:
            known = self._features = {}
        if feature not in known:
            known[feature] = self.codec.uses_feature(self, feature)
        return known[feature]


@dataclass(slots=True, kw_only=True)
class GenerateRequest(ModelRequest):
    """A request for text or of a text, with OpenAI's body.

    `fields` are the body's top-level values, still encoded: an adapter splices the upstream's body from them
    without touching what nobody here reads.
    """

    path: ClassVar[str]
    answered: ClassVar[str] = "choices"
    """The key of an answer that holds what was asked for."""

    fields: dict[str, Raw] = field(repr=False)
    include_usage: bool = False
    """Whether the client itself asked for usage at the end of its stream."""


@dataclass(slots=True, kw_only=True)
class ChatRequest(GenerateRequest):
    """`/v1/chat/completions`."""

    path: ClassVar[str] = "/chat/completions"
    operation: ClassVar[str] = "chat"


@dataclass(slots=True, kw_only=True)
class ResponsesRequest(GenerateRequest):
    """`/v1/responses`, for servers that know it. For any other it is made a `ChatRequest`."""

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

    `body` goes on as it is where the upstream speaks the same wire and knows the model by the same name, and is read
    into an `inference` where it does not, or where somebody wants to know what is in it. Of names and versions,
    `model` and `version` count, and not what the client wrote.
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
    """`body` without its compression, where it has one."""
    accepts: str = ""
    """What the client's Accept-Encoding says that the answer may be compressed by."""
    starts: bool = False
    """It begins its sequence, whatever was before."""
    ends: bool = False
    """It is the last of its sequence."""
    verb: Verb = "predict"
    by_row: bool = True
    """Of `predict-v1`: whether the answer is told row by row, as what was asked is."""
    explainer: bool = False
    """Its model is there to explain another's answers: whatever it answers is an explanation."""
    _inference: Inference | None = field(default=None, repr=False)

    @property
    def shareable(self) -> bool:
        return not self.sequence and self.kind in ("infer", "generate")

    @property
    def inference(self) -> Inference:
        """What is asked, read when it is first wanted. Raises `CallerError`."""
        if self._inference is None:
            self._inference = self.codec.inference(self)
        return self._inference

    @inference.setter
    def inference(self, inference: Inference) -> None:
        self._inference = inference

    @property
    def is_decoded(self) -> bool:
        """Whether `inference` is there already."""
        return self._inference is not None

    @property
    def plain(self) -> bytes:
        """`body` as it is to be read."""
        return self.opened or self.body

    def write(self, body: bytes, header_length: int | None = None) -> None:
        """Put another body, which is not compressed, in the place of the client's."""
        self.body, self.header_length = body, header_length
        self.encoding, self.opened, self._inference = "", b"", None


@dataclass(slots=True, kw_only=True)
class ModelQuery(ModelRequest):
    """A question about a model of tensors, which its server answers. It goes where an inference would."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    about: ModelPart = "metadata"

    @property
    def shareable(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class ModelOrder(ModelRequest):
    """What an operator has the servers of a model do with it."""

    operation: ClassVar[str] = "infer"

    n: int = 0
    order: Order = "load"
    body: bytes = field(default=b"", repr=False)
    """As the protocol has it over HTTP: a configuration, files, or whether what needs the model goes too."""

    @property
    def shareable(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class AppRequest(ModelRequest):
    """A call of an HTTP app behind a model's name, whose bodies are its own business.

    It is answered with the app's own status from 200 to 499, but for 429: that one and what follows are failures, which
    may be tried elsewhere.
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
    """What the bytes of an answer are written in."""

    wire: Wire = "openai"
    header_length: int | None = None
    """Of `oip-http`: bytes of JSON before the tensors' own; None where all is JSON."""
    encoding: str = ""
    """How they are compressed, as Content-Encoding names it."""


OPENAI = Form()
OIP_JSON = Form("oip-http")
OIP_GRPC = Form("oip-grpc")
PREDICT_V1 = Form("predict-v1")
TFSERVING_GRPC = Form("tfserving-grpc")
APP = Form("app")
"""Whatever the app writes."""
ANTHROPIC = Form("anthropic")


class Deadline(NamedTuple):
    """The end of every wait of one call. `at` is absolute loop time; the others are seconds."""

    at: float
    first_byte: float
    idle: float

"""The domain types: the parts of requests, their cost, the form of answers, deadlines. No I/O, no protocol."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Feature = Literal["tools", "json_schema", "vision"]
"""A capability of a model in addition to text that a request may require."""
TensorWire = Literal["oip-http", "oip-grpc", "predict-v1", "tfserving-grpc"]
Wire = Literal["openai", "oip-http", "oip-grpc", "predict-v1", "tfserving-grpc", "app", "anthropic", "gemini"]
InferKind = Literal["infer", "infer_stream", "generate", "generate_stream", "explain"]
"""One response or a stream of responses, for tensors or (`oip-http` only) for a prompt in a JSON object."""
Verb = Literal["predict", "explain", "classify", "regress"]
"""For `predict-v1`: the last word of the path."""
ModelPart = Literal["metadata", "ready", "config", "stats"]
"""The subject of a query. Responses are JSON in the protocol's HTTP form for every upstream."""
Order = Literal["load", "unload"]
BYTES_PER_TOKEN = 4
"""For estimates, for every tokenizer."""
ERROR_CODE = "x-headrace-error"
"""The field with the stable code of an error: a header, over gRPC a trailer, in a stream a parameter."""
DEVICE_MS = "headrace-device-ms"
"""The header, or gRPC trailer, in which the bundled runtime reports the device time of a request."""


@dataclass(slots=True)
class Usage:
    """The cost of an answer so far. `exact` is False for the gateway's own count, True for the server's count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    exact: bool = False
    rows: int = 0
    """For tensors: the first dimension of the batch."""
    bytes: int = 0
    """Bytes of the upstream's response body."""
    device_ms: float = 0
    """Time on the model's device, if the server reports it."""
    cached_tokens: int = 0
    """The part of the prompt that the server reports as read from its cache."""
    reasoning_tokens: int = 0
    """The part of the completion that the server reports as reasoning."""
    cache_write_tokens: int = 0
    """The part of the prompt that the server reports as written to its cache."""
    cache_hour_tokens: int = 0
    """The part of those that the cache keeps for an hour."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def estimate(self, prompt_tokens: int) -> None:
        """Replace the server's count of tokens by an estimate from the bytes of the answer."""
        self.prompt_tokens, self.completion_tokens, self.exact = prompt_tokens, self.bytes // BYTES_PER_TOKEN, False
        self.cached_tokens = self.reasoning_tokens = self.cache_write_tokens = self.cache_hour_tokens = 0


class Form(NamedTuple):
    """The wire format of an answer's bytes."""

    wire: Wire = "openai"
    header_length: int | None = None
    """For `oip-http`: bytes of JSON before the binary tensors; None for JSON only."""
    encoding: str = ""
    """The compression: a Content-Encoding."""
    generates: bool = False
    """For `oip-http`: objects of the generate extension instead of responses with tensors."""


OPENAI = Form()
OIP_JSON = Form("oip-http")
OIP_GENERATE = Form("oip-http", generates=True)
OIP_GRPC = Form("oip-grpc")
PREDICT_V1 = Form("predict-v1")
TFSERVING_GRPC = Form("tfserving-grpc")
APP = Form("app")
"""The app's own format."""
ANTHROPIC = Form("anthropic")
GEMINI = Form("gemini")


class Deadline(NamedTuple):
    """The limits of every wait of one call. `at` is absolute loop time; the other fields are seconds."""

    at: float
    first_byte: float
    idle: float

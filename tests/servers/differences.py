"""Intended differences between our runtime and Triton: each is a row of `docs/tensor-runtime.md`, and is checked."""

from collections.abc import Sequence

from tests.servers.comparison import Difference, Status


def _each(group: str, status: Status, *names: str, count: int = 1) -> dict[str, Sequence[Status | None]]:
    """Cases of a group in which every answer of ours has one status."""
    return {f"{group}: {name}": [status] * count for name in names}


_NOT_UNDERSTOOD = Difference(
    "an invalid request: not JSON, a member of the wrong type, data that does not fit its shape",
    "500",
    "400",
    "it is the caller's mistake: our monitoring and retries must not count it as a failure of the server",
    {
        **_each(
            "bad input",
            400,
            *("no JSON", "bytes that are no UTF-8", "an id that is no text", "input without a name"),
            *("input without a datatype", "input without a shape", "outputs that are no list"),
            *("shape with a negative size", "shape with a text", "shape with a fraction", "shape that is no list"),
            *("too few elements", "too many elements", "data that is no list", "an object as data", "null in data"),
            *("a fraction for INT32", "a truth for INT32", "a text for INT32"),
            *("2^63 for INT32", "a thousand digits for INT32", "-1 for UINT64", "2^64 for UINT64", "2 for BOOL"),
            *("1e400 for FP64", "a text for FP32", "a number for BYTES", "a lone surrogate for BYTES"),
            *("data nested 2000 deep", "parameters that are no object", "negative binary size"),
            *("binary size as a text", "header length inside the JSON", "classes that are no number"),
            *("binary_data_output that is no truth",),
        ),
        **_each("bad input", 400, "JSON that is no object", count=3),
        "bad input: no inputs": [400, None],
        "bad input: inputs that are no list": [400, None],
        **_each("framing", 400, "gzip that is cut off"),
        **_each("streams", 400, "generate with a text for INT32"),
        **_each("streams", 400, "generate without JSON", "generate_stream without JSON"),
        "control: load with a config that is none": [400, None, None],
        "control: load with a config that is no text": [400, None, None],
        "control: load without JSON": [400, None, None],
        "gRPC: bytes that are no message": ["INVALID_ARGUMENT"],
    },
)

_WHOLE = Difference(
    "a whole number written as a float (`1.0`), in JSON for an integer tensor",
    "500",
    "200",
    "languages with one number type write them",
    _each("bad input", 200, "a whole fraction for INT32"),
)

_MISREAD = Difference(
    "numbers outside their datatype, NaN and Infinity in JSON, nesting that contradicts the shape, an "
    "output requested twice, more raw contents than inputs",
    "200, with other numbers than the client sent",
    "400",
    "a wrong answer is worse than none; JSON has no NaN, binary tensors do",
    {
        **_each("inference", 400, "data in two halves"),
        **_each(
            "bad input",
            400,
            *("2^31 for INT32", "256 for UINT8", "1e39 for FP32", "NaN for FP32", "Infinity for FP64"),
            *("ragged data", "an output twice"),
        ),
        "gRPC: more raw contents than inputs": ["INVALID_ARGUMENT"],
    },
)

_UNKNOWN = Difference(
    "a missing model or version: readiness, statistics, load, a version that is not a number",
    "400, 500, or `ready: false`",
    "404, NOT_FOUND",
    "Triton has the same status for every other request to such a model",
    {
        **_each("metadata", 404, "unknown model ready", count=2),
        **_each("metadata", 404, "stats of an unknown model"),
        **_each("control", 404, "load of an unknown model"),
        "gRPC: unknown model ready": ["NOT_FOUND"],
        "gRPC: version that is no number": ["NOT_FOUND"],
        "gRPC: stats of an unknown model": ["NOT_FOUND"],
        "gRPC: load and unload of an unknown model": ["NOT_FOUND", None],
    },
)

_UNLOADED = Difference(
    "a model of the repository that is not loaded",
    "404, and 400 for its readiness",
    "503 with `retry-after`",
    "it may be loaded again, so a client, a load balancer and our gateway should retry or use another server",
    {"control: unload and load": [None, 503, 503, None, None, None, None]},
)

_RAISES = Difference(
    "a model that raises before its first response to `generate_stream`",
    "400",
    "500",
    "`infer` has this status, in Triton too",
    _each("streams", 500, "generate_stream that fails at once"),
)

_GENERATE = Difference(
    "`generate` of a model without exactly one response",
    "200, with an error in the body",
    "400",
    "the status should report the error",
    _each("streams", 400, "generate, decoupled, three answers", "generate, decoupled, no answer"),
)

_SEQUENCE_ID = Difference(
    "a text as `sequence_id`, for a model with numeric ids",
    "200, with a number that Triton derives",
    "400",
    "two texts could become one number",
    _each("sequences", 400, "with a text as id, for a model that wants a number"),
)

_LARGE = Difference(
    "more rows than `max_batch_size`",
    "400",
    "200: they are split, computed and joined",
    "the batch size is internal to the server",
    _each("bad input", 200, "a batch too large"),
)

_BINARY = Difference(
    "`binary_data_output` with named outputs",
    "ignored",
    "applies to every output without a `binary_data` of its own",
    "the extension specifies this",
    free=["inference: an output that is not binary after all"],
)

_NO_TEXT = Difference(
    "bytes that are not UTF-8, requested as JSON",
    "200, with a body that is not JSON",
    "400, which suggests binary data",
    "a client could not read the answer",
    _each("inference", 400, "bytes that are no UTF-8, out as JSON"),
)

_ORDER = Difference(
    "the order of outputs",
    "that of the configuration",
    "that of the request, if it names them",
    "a client that requests two outputs in an order may read them in that order",
    free=["inference: outputs in the other order"],
)

_CODING = Difference(
    "an unknown `content-encoding`",
    "501",
    "415",
    "HTTP has a status for it",
    _each("framing", 415, "an unknown coding in"),
)

_PROBES = Difference(
    "HEAD on the health paths",
    "405",
    "200",
    "some load balancers probe with it",
    _each("metadata", 200, "live by HEAD"),
)

_ITSELF = Difference(
    "server metadata",
    "`triton` and its extensions",
    "`headrace` and its extensions; shared memory is listed if it is enabled",
    "clients rely on this list",
    keys=["name", "version", "extensions"],
    leaves_out=["metadata: server", "gRPC: server"],
)

_MEMORY = Difference(
    "`memory_usage` in statistics",
    "empty for a model in Python",
    "the memory measured during the load",
    "the memory budget uses it",
    keys=["memory_usage"],
    leaves_out=["control: statistics"],
)

_LOGS = Difference(
    "log settings",
    "any member is accepted, `log_format` is `default`",
    "an unknown member is 400, `log_format` is `ISO8601`",
    "a setting without effect is a mistake",
    _each("control", 400, "log settings that are none"),
    keys=["log_format"],
    leaves_out=["control: log settings", "gRPC: settings"],
)

_SHARED_MEMORY = Difference(
    "shared memory, by default",
    "enabled: 500 for a missing region",
    "disabled: 403",
    "it lets a client read and write memory of the machine; newer releases of Triton disable it too",
    {"control: a region that cannot be": [403, None, None]},
)

DIFFERENCES: Sequence[Difference] = (
    *(
        _NOT_UNDERSTOOD,
        _WHOLE,
        _MISREAD,
        _UNKNOWN,
        _UNLOADED,
        _RAISES,
        _GENERATE,
        _SEQUENCE_ID,
        _LARGE,
        _BINARY,
        _NO_TEXT,
        _ORDER,
        _CODING,
        _PROBES,
    ),
    *(_ITSELF, _MEMORY, _LOGS, _SHARED_MEMORY),
)

"""Answers through our gateway that differ from its server's: each is a row of `docs/tensor-runtime.md`.

These precede the differences of our runtime in `differences.py`. Loading, shared memory and settings are not here:
the gateway refuses them all.
"""

from collections.abc import Sequence

from tests.servers.comparison import Difference

AT_THE_GATEWAY: Sequence[Difference] = (
    Difference(
        "bodies of `live` and `ready`",
        "none",
        '`{"live": true}`, `{"name": …, "ready": true}`',
        "KServe's clients read them",
        free=["metadata: live", "metadata: ready", "metadata: model ready"],
    ),
    Difference(
        "POST to a health path",
        "405",
        "404",
        "without a key, a client may only call two paths with two methods",
        {"metadata: live by POST": [404]},
    ),
    Difference(
        "`GET /v2/models`",
        "404",
        "the models of the caller",
        "KServe has it",
        {"metadata: list of models": [200]},
    ),
    Difference(
        "an unknown path outside of `/v2`",
        '`{"error": "…"}`',
        "an error in OpenAI's shape",
        "the path is not part of this protocol",
        free=["metadata: no such path"],
    ),
    Difference(
        "readiness of an unknown version",
        "`ready: false`, 400",
        "503",
        "as for a version that is not ready at its servers",
        {"metadata: unknown model ready": [404, 503]},
    ),
    Difference(
        "a model that raises, over HTTP",
        "500",
        "502",
        "distinguishes the server's failures from the gateway's own",
        {"bad input: a model that raises": [502], "streams: generate_stream that fails at once": [502]},
    ),
    Difference(
        "an input in shared memory",
        "404 for a missing region",
        "502, because the server refuses it",
        "clients of a gateway share no memory with its servers",
        {"bad input: a region of shared memory that is not there": [502]},
    ),
    Difference(
        "`infer` of a decoupled model, over HTTP",
        "501",
        "400",
        "it is the caller's mistake, and the gateway's other paths support it",
        {"streams: a decoupled model asked to infer": [400]},
    ),
    Difference(
        "versions in the repository's index",
        "listed",
        "omitted",
        "the pools of a model may have servers with different versions",
        keys=["version"],
        leaves_out=["gRPC: index"],
    ),
)

REFUSED = (
    *("gRPC: load and unload of an unknown model", "gRPC: unload and load", "gRPC: settings"),
    "gRPC: regions of shared memory",
)
"""The whole group of `control` is refused too, except the index and statistics."""

"""Where an answer through our gateway is another than the server's behind it: each a row of `docs/tensor-runtime.md`.

These come before those of `differences.py`, which are of our runtime. Loading, shared memory and settings are not here:
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
        "health needs no key, and is two paths and two verbs",
        {"metadata: live by POST": [404]},
    ),
    Difference(
        "`GET /v2/models`",
        "404",
        "the models that the caller may use",
        "KServe has it",
        {"metadata: list of models": [200]},
    ),
    Difference(
        "an unknown path outside of `/v2`",
        '`{"error": "…"}`',
        "an error in OpenAI's shape",
        "it is no path of this protocol",
        free=["metadata: no such path"],
    ),
    Difference(
        "whether an unknown version is ready",
        "`ready: false`, 400",
        "503",
        "as for a version that its servers do not have ready",
        {"metadata: unknown model ready": [404, 503]},
    ),
    Difference(
        "a model that raises, over HTTP",
        "500",
        "502",
        "so that the server's failures are told from the gateway's own",
        {"bad input: a model that raises": [502], "streams: generate_stream that fails at once": [502]},
    ),
    Difference(
        "an input in shared memory",
        "404 for a region that is not there",
        "502, since the server refuses it",
        "clients of a gateway share no memory with its servers",
        {"bad input: a region of shared memory that is not there": [502]},
    ),
    Difference(
        "`infer` of a decoupled model, over HTTP",
        "501",
        "400",
        "it is the caller's mistake, and a server that does what is asked stands behind the gateway's other paths",
        {"streams: a decoupled model asked to infer": [400]},
    ),
    Difference(
        "versions in the repository's index",
        "told",
        "left out",
        "one model may have several pools of servers with versions of their own",
        keys=["version"],
        leaves_out=["gRPC: index"],
    ),
)

REFUSED = (
    *("gRPC: load and unload of an unknown model", "gRPC: unload and load", "gRPC: settings"),
    "gRPC: regions of shared memory",
)
"""With the whole group of `control`, but for the index and statistics."""

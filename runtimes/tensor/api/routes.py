"""The paths of the protocol over HTTP, Triton's extensions included, and the operation of each."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

GET = ("GET", "HEAD")
POST = ("POST",)
BOTH = ("GET", "POST")

GROUPS = (
    "health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace",
    "logging",
)  # fmt: skip
"""Parts of the interface that may be restricted, by Triton's names."""


class PathMatch(NamedTuple):
    """A path. `operation` is "" for an unknown path; `about` is the name of a model or a region."""

    operation: str
    group: str = ""
    methods: tuple[str, ...] = ()
    about: str = ""
    version: str = ""


_MODEL = r"/v2/models/(?P<about>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_REGION = r"/v2/(?:{})sharedmemory(?:/region/(?P<about>[^/]+))?"
_REPOSITORY = r"/v2/repository(?:/[^/]+)?"
_PATHS = tuple(
    (re.compile(pattern), operation, group, methods)
    for pattern, operation, group, methods in (
        (f"{_MODEL}/infer", "infer", "inference", POST),
        (f"{_MODEL}/generate", "generate", "inference", POST),
        (f"{_MODEL}/generate_stream", "generate_stream", "inference", POST),
        (f"{_MODEL}/infer_stream", "infer_stream", "inference", POST),
        (_MODEL, "model_metadata", "metadata", GET),
        (f"{_MODEL}/ready", "model_ready", "health", GET),
        (f"{_MODEL}/config", "config", "model-config", GET),
        (f"{_MODEL}/stats", "statistics", "statistics", GET),
        (f"{_MODEL}/trace/setting", "trace", "trace", BOTH),
        ("/v2/models/stats", "statistics", "statistics", GET),
        ("/v2", "server_metadata", "metadata", GET),
        ("/v2/health/live", "live", "health", GET),
        ("/v2/health/ready", "ready", "health", GET),
        (f"{_REPOSITORY}/index", "index", "model-repository", POST),
        (f"{_REPOSITORY}/models/(?P<about>[^/]+)/load", "load", "model-repository", POST),
        (f"{_REPOSITORY}/models/(?P<about>[^/]+)/unload", "unload", "model-repository", POST),
        (f"{_MODEL}/retain", "retain", "model-repository", POST),
        (f"{_REGION.format('system')}/status", "regions", "shared-memory", GET),
        (f"{_REGION.format('system')}/register", "register", "shared-memory", POST),
        (f"{_REGION.format('system')}/unregister", "unregister", "shared-memory", POST),
        (f"{_REGION.format('cuda')}/status", "cuda_regions", "shared-memory", GET),
        (f"{_REGION.format('cuda')}/(?:register|unregister)", "cuda_region", "shared-memory", POST),
        ("/v2/trace/setting", "trace", "trace", BOTH),
        ("/v2/logging", "logging", "logging", BOTH),
        ("/metrics", "metrics", "", GET),
    )
)


@lru_cache(maxsize=4096)
def resolve(target: bytes) -> PathMatch:
    """The route of a path. Cached: clients use few paths."""
    path = target.decode("latin-1").rstrip("/")
    if path == "/v2/models/stats":  # Triton has another resource at this path, so no model may have this name
        return PathMatch("statistics", "statistics", GET)
    for pattern, operation, group, methods in _PATHS:
        if match := pattern.fullmatch(path):
            parts = match.groupdict()
            return PathMatch(operation, group, methods, _name(parts.get("about")), _name(parts.get("version")))
    return PathMatch("")


def _name(part: str | None) -> str:
    return "" if part is None else unquote(part, errors="replace")

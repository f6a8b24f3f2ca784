"""The paths of the HTTP interface, and its parts that need a secret (Triton's restricted APIs).

    --restrict model-repository,shared-memory:admin-key=SECRET

Over gRPC the header has the prefix that Triton gives it.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from adapters.errors import Forbidden

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
_V1 = r"/v1/models/(?P<about>[^/:]+)(?:/versions/(?P<version>[^/:]+))?"
_REGION = r"/v2/(?:{})sharedmemory(?:/region/(?P<about>[^/]+))?"
_REPOSITORY = r"/v2/repository(?:/[^/]+)?"
_PATHS = tuple(
    (re.compile(pattern), operation, group, methods)
    for pattern, operation, group, methods in (
        (f"{_MODEL}/infer", "infer", "inference", POST),
        (f"{_MODEL}/explain", "explain", "inference", POST),
        (f"{_V1}:explain", "explain_v1", "inference", POST),
        (f"{_V1}:predict", "predict_v1", "inference", POST),
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
        (r"/predictions/(?P<about>[^/]+)(?:/(?P<version>[^/]+))?", "predictions", "inference", ("POST", "PUT")),
        ("/ping", "ping", "health", GET),
        ("/models", "models", "metadata", GET),
        (r"/models/(?P<about>[^/]+)", "described", "metadata", GET),
        ("/invocations", "invocations", "inference", POST),
        (r"/models/(?P<about>[^/]+)/invoke", "invocations", "inference", POST),
    )
)


_CHANGES = {
    ("models", "POST"): PathMatch("load_placed", "model-repository", POST),
    ("described", "DELETE"): PathMatch("unload_placed", "model-repository", ("DELETE",)),
}
"""What other methods of a path do, by the operation of `resolve`."""


def changing(route: PathMatch, method: str) -> PathMatch | None:
    """The operation of a path by a method that changes it, of another group than that which reads it; None without
    one."""
    change = _CHANGES.get((route.operation, method))
    return None if change is None else change._replace(about=route.about)


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
    return _of_vertex(path)


def _of_vertex(path: str) -> PathMatch:
    """A path that Vertex AI gives its containers in the environment."""
    if path == os.environ.get("AIP_PREDICT_ROUTE", "").rstrip("/") != "":
        return PathMatch("vertex", "inference", POST)
    if path == os.environ.get("AIP_HEALTH_ROUTE", "").rstrip("/") != "":
        return PathMatch("ping", "health", GET)
    return PathMatch("")


def _name(part: str | None) -> str:
    return "" if part is None else unquote(part, errors="replace")


GRPC_PREFIX = "triton-grpc-protocol-"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Groups of the interface, and the header with their secret."""

    groups: tuple[str, ...]
    header: str
    secret: str


def parse(text: str) -> Restriction:
    """Parse one restriction. Raises `ValueError` with the expected form."""
    names, _, pair = text.partition(":")
    header, _, secret = pair.partition("=")
    groups = tuple(name.strip() for name in names.split(","))
    if unknown := [name for name in groups if name not in GROUPS]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    if not header.strip() or not secret:
        raise ValueError("write GROUP,GROUP:HEADER=SECRET")
    return Restriction(groups, header.strip().lower(), secret)


class Restrictions:
    """All restrictions of a server. False if there are none."""

    def __init__(self, given: Iterable[Restriction] = ()) -> None:
        self._of: dict[str, Restriction] = {}
        for restriction in given:
            for group in restriction.groups:
                if group in self._of:
                    raise ValueError(f"{group} is restricted twice")
                self._of[group] = restriction

    def __bool__(self) -> bool:
        return bool(self._of)

    def check(self, group: str, header: Callable[[str], str | None], prefix: str = "") -> None:
        """Raise `Forbidden` for a request without the secret; `header` returns a header by its name in lower case."""
        restriction = self._of.get(group)
        if restriction is None:
            return
        name = prefix + restriction.header
        if not hmac.compare_digest((header(name) or "").encode(), restriction.secret.encode()):
            raise Forbidden(f"This API is restricted, expecting header '{name}'.")

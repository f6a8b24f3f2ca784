"""Paths of the protocol."""

import pytest

from runtimes.tensor.api.routes import resolve

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("target", "operation", "about", "version"),
    [
        (b"/v2", "server_metadata", "", ""),
        (b"/v2/", "server_metadata", "", ""),
        (b"/v2/health/live", "live", "", ""),
        (b"/v2/models/m", "model_metadata", "m", ""),
        (b"/v2/models/m/versions/3", "model_metadata", "m", "3"),
        (b"/v2/models/m/versions/stable/infer", "infer", "m", "stable"),
        (b"/v2/models/a%20b/infer", "infer", "a b", ""),
        (b"/v2/models/m/generate_stream", "generate_stream", "m", ""),
        (b"/v2/models/m/infer_stream", "infer_stream", "m", ""),
        (b"/v2/models/stats", "statistics", "", ""),
        (b"/v2/models/m/stats", "statistics", "m", ""),
        (b"/v2/models/m/versions/1/trace/setting", "trace", "m", "1"),
        (b"/v2/trace/setting", "trace", "", ""),
        (b"/v2/logging", "logging", "", ""),
        (b"/v2/repository/index", "index", "", ""),
        (b"/v2/repository/main/index", "index", "", ""),
        (b"/v2/repository/models/m/load", "load", "m", ""),
        (b"/v2/repository/main/models/m/unload", "unload", "m", ""),
        (b"/v2/repository/models/..%2Foutside/load", "load", "../outside", ""),
        (b"/v2/systemsharedmemory/status", "regions", "", ""),
        (b"/v2/systemsharedmemory/region/r/status", "regions", "r", ""),
        (b"/v2/systemsharedmemory/region/r/register", "register", "r", ""),
        (b"/v2/systemsharedmemory/unregister", "unregister", "", ""),
        (b"/v2/cudasharedmemory/region/r/register", "cuda_region", "r", ""),
        (b"/metrics", "metrics", "", ""),
    ],
)
def test_a_path_resolves_to_its_operation(target: bytes, operation: str, about: str, version: str) -> None:
    route = resolve(target)
    assert (route.operation, route.about, route.version) == (operation, about, version)


@pytest.mark.parametrize(
    "target",
    [
        b"/", b"/v1", b"/v2/nothing", b"/v2/models", b"/v2/models//infer", b"/v2/models/m/nothing", b"/V2",
        b"/v2/models/m/infer/x", b"/v2/repository/models/m", b"/v2/cudasharedmemory/region/r",
    ],
)  # fmt: skip
def test_where_there_is_nothing(target: bytes) -> None:
    assert resolve(target).operation == ""

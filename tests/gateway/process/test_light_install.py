"""Features that are not configured need no installed packages."""

from subprocess import run
from sys import executable

import pytest

pytestmark = pytest.mark.processes

CODE = """
import sys
for name in (
    "google", "google.protobuf", "hpack", "numpy", "grpc", "tokenizers", "zstandard", "redis", "torch", "jinja2",
):
    sys.modules[name] = None  # an import of it fails
import adapters.conformance, gateway.__main__, gateway.process.app, gateway.process.commands, gateway.process.serve
import gateway.process.supervisor.worker
from importlib import import_module
from adapters.registry import MODULES, OVER_GRPC
for name in MODULES.keys() - OVER_GRPC:
    import_module(MODULES[name])
for name in OVER_GRPC:
    try:
        import_module(MODULES[name])
    except ImportError:
        continue
    raise AssertionError(f"{name} needs no extra")
from adapters.wire import compression
from adapters.wire.oip import bodies, generate, request_view, requests, responses
assert not [name for name in sys.modules if name.startswith(("config.catalogue.reading", "config.imports"))]
"""


def test_the_gateway_needs_no_extra() -> None:
    done = run([executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


GUARDS = """
import sys
for name in ("numpy", "jinja2", "tokenizers", "py3langid"):
    sys.modules[name] = None  # an import of it fails
from config.schema.config import Config
from gateway.features.guards.observer import Guards
from gateway.features.guards.table import GuardTable
base = {
    "version": 1, "pools": [{"name": "main", "endpoints": ["http://127.0.0.1:9"]}],
    "models": [{"name": "chat", "routes": [{"to": "main"}], "guards": ["g"]}],
    "tenants": [{"name": "acme", "models": ["*"]}],
}
def load(**guard):
    config = Config.model_validate({**base, "guards": [{"name": "g", **guard}]})
    Guards(GuardTable(config, lambda: b"pepper" * 8))
load(kind="words", words=["zebra"])
judging = ("gateway.features.guards.judges", "gateway.features.pipelines", "jsonschema")
assert not [name for name in sys.modules if name.startswith(judging)]
load(kind="model", model="chat", prompt="Is it?")
load(kind="injection", model="chat", labels=["BAD"])
load(kind="topics", embed="chat", deny=[{"name": "a", "examples": ["b"]}])
load(kind="webhook", model="chat", service="lakera")
assert "jsonschema" not in sys.modules
load(kind="schema", json_schema={})
"""


def test_guards_load_the_packages_of_their_kinds() -> None:
    done = run([executable, "-c", GUARDS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

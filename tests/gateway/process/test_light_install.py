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

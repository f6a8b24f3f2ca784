"""Every protocol has a module, and an installed protocol is used like the built-in ones."""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint

import pytest

from adapters import registry
from adapters.base import Adapter
from adapters.fake import FakeAdapter, Script
from adapters.registry import Address
from config.schema.config import PoolConfig
from config.schema.protocols import BUILT_IN, ProtocolConfig
from tests.support.gateways import config


class Echo:
    options = ProtocolConfig

    @staticmethod
    def make(pool: PoolConfig, address: Address) -> Adapter:
        return FakeAdapter(Script(), name=f"{pool.name} at {address.url}")


def test_every_protocol_is_spoken() -> None:
    assert list(registry.MODULES) == list(BUILT_IN)
    for module in registry.MODULES.values():
        assert callable(import_module(module).make)


def test_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point = EntryPoint("echo", f"{__name__}:Echo", "headrace.protocols")
    for module in ("config.schema.protocols.catalogue", "adapters.registry"):
        monkeypatch.setattr(sys.modules[module], "installed", lambda: {"echo": entry_point})
    (pool,) = config(pools=[{"name": "main", "protocol": "echo", "endpoints": ["http://127.0.0.1:9"]}]).pools
    made = registry.make(pool, Address("http://127.0.0.1:9"))
    assert isinstance(made, FakeAdapter)
    assert made.name == "main at http://127.0.0.1:9"

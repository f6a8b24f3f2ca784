"""The source of an address."""

from __future__ import annotations

from adapters.stores.http import Http
from adapters.stores.local import LocalArchive
from adapters.stores.source import ObjectSource
from adapters.stores.web import WebArchive
from config.stores import StoreAddress


def source_of(address: StoreAddress) -> ObjectSource:
    """The source of an address. Nothing is requested yet. Raises `StoreError`."""
    if address.scheme == "file":
        return LocalArchive(address)
    return WebArchive(address, Http())

"""The source of an address."""

from __future__ import annotations

from adapters.stores.http import Http
from adapters.stores.hub import HubProject
from adapters.stores.local import LocalArchive
from adapters.stores.registry import RegistryImage
from adapters.stores.source import ObjectSource, StoreError
from adapters.stores.web import WebArchive
from config.installing import installing
from config.stores import StoreAddress


def source_of(address: StoreAddress) -> ObjectSource:
    """The source of an address. Nothing is requested yet. Raises `StoreError`."""
    if address.scheme == "file":
        return LocalArchive(address)
    if address.bucket:
        try:
            from adapters.stores.objects import BucketSource
        except ModuleNotFoundError as error:
            if error.name != "obstore":
                raise
            raise StoreError(f"obstore is not installed: {installing('stores')}") from None
        return BucketSource(address)
    if address.scheme == "hf":
        return HubProject(address)
    if address.scheme == "oci":
        return RegistryImage(address)
    return WebArchive(address, Http())

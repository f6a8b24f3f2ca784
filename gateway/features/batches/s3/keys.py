"""The access keys that sign the requests to a bucket: that of the file, or those that the gateway makes and renews."""

import asyncio
from collections.abc import Callable
from concurrent.futures import TimeoutError as LateError
from functools import partial
from typing import TYPE_CHECKING, Protocol

from adapters.credentials.sigv4 import AccessKey
from adapters.errors import InferenceError
from config.schema.batches import S3Config
from config.schema.protocols.credentials import AwsCredentials
from gateway.features.batches.storage import StorageError

if TYPE_CHECKING:
    from adapters.credentials.renewed import Renewed

OWNER = "batches"
"""The name of the storage among the pools that use a key, for the log."""
MARGIN = 5.0
"""Seconds after the longest wait for a key until the event loop is given up."""


class S3Keys(Protocol):
    """The keys. Every method blocks; threads share them."""

    def get(self) -> AccessKey:
        """The valid key. Raises `StorageError`."""
        ...

    def replaces(self, key: AccessKey) -> bool:
        """Whether there is, or soon may be, another key than one that the server has refused."""
        ...


class KeyOfFile:
    """One key."""

    def __init__(self, key: AccessKey) -> None:
        self._key = key

    def get(self) -> AccessKey:
        return self._key

    def replaces(self, key: AccessKey) -> bool:
        return False


class MadeKeys:
    """Keys of a source of AWS, renewed in an event loop. Pools with the same source share them."""

    def __init__(self, config: AwsCredentials, region: str, loop: asyncio.AbstractEventLoop) -> None:
        from adapters.credentials import making, renewed

        self._loop = loop
        self._most = renewed.WAIT + MARGIN
        self._open: Callable[[], Renewed[AccessKey]] = partial(making.access_keys, config, region)
        self._source: Renewed[AccessKey] | None = None

    def get(self) -> AccessKey:
        if self._source is not None and (key := self._source.valid) is not None:
            return key
        try:
            return asyncio.run_coroutine_threadsafe(self._issued(), self._loop).result(self._most)
        except InferenceError as error:
            raise StorageError(error.detail or error.message) from None
        except (LateError, RuntimeError) as error:  # a loop that ends
            raise StorageError(f"credentials: {type(error).__name__}") from None

    async def _issued(self) -> AccessKey:
        if self._source is None:
            self._source = self._open()
            self._source.pools.add(OWNER)
        return await self._source.get(OWNER)

    def replaces(self, key: AccessKey) -> bool:
        async def discards() -> bool:
            return self._source is not None and self._source.discards(key)

        try:
            return asyncio.run_coroutine_threadsafe(discards(), self._loop).result(self._most)
        except (LateError, RuntimeError):
            return False


def keys_of(config: S3Config, loop: asyncio.AbstractEventLoop | None) -> S3Keys:
    """The keys of a configuration. Those that are made need the event loop that renews them."""
    if config.key_id is not None and config.secret is not None:
        return KeyOfFile(AccessKey(config.key_id.get_secret_value(), config.secret.get_secret_value()))
    assert config.credentials is not None
    assert loop is not None
    return MadeKeys(config.credentials.aws, config.region, loop)

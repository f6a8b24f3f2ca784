"""Opens the storage of the configuration."""

import asyncio

from config.schema.batches import BatchesConfig
from gateway.features.batches.local_storage import LocalStorage
from gateway.features.batches.s3.storage import S3Storage
from gateway.features.batches.storage import Storage


def open_storage(config: BatchesConfig, loop: asyncio.AbstractEventLoop) -> Storage:
    """The folder or the bucket, whose keys are renewed in `loop`. Blocks. Raises `StorageError`."""
    if config.s3 is None:
        return LocalStorage(config.storage.removeprefix("file:"))
    return S3Storage(config.storage, config.s3, loop)

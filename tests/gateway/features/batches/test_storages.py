"""A folder and a real S3 server behave alike, in every use that batches make of a storage."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.features.batches.local_storage import LocalStorage
from gateway.features.batches.s3 import storage as s3_storage
from gateway.features.batches.s3.storage import S3Storage
from gateway.features.batches.storage import NoObject, Storage, StorageError
from tests.support.s3 import BUCKET, s3_server

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


def stored(storage: Storage, name: str, data: bytes) -> None:
    with storage.create(name) as writer:
        for at in range(0, len(data), 1 << 20):
            writer.write(data[at : at + (1 << 20)])
        writer.commit()


def objects(storage: Storage) -> None:
    for size in (0, 1, 5 << 20, (16 << 20) + 3):
        data = os.urandom(size)
        stored(storage, "files/a", data)
        assert storage.size("files/a") == size
        assert storage.read("files/a", 0, size) == data
        assert storage.read("files/a", size // 3, size) == data[size // 3 :]
        assert storage.read("files/a", size, 10) == b""
        assert storage.read("files/a", size + 9, 10) == b""
    storage.delete("files/a")
    storage.delete("files/a")
    with pytest.raises(NoObject):
        storage.read("files/a", 0, 1)
    with pytest.raises(NoObject):
        storage.size("files/a")


def abandoned(storage: Storage) -> None:
    stored(storage, "files/b", b"old")
    with storage.create("files/b") as writer:
        writer.write(bytes(20 << 20))
    assert storage.read("files/b", 0, 9) == b"old"


def logs(storage: Storage) -> None:
    assert storage.log("batches/x/0.1.log") == b""
    storage.append("batches/x/0.1.log", 0, b"aaaa")
    storage.append("batches/x/0.1.log", 4, b"bb")
    storage.append("batches/x/0.1.log", 4, b"bbcc")  # repeated, as after a failure
    storage.append("batches/x/0.1.log", 8, b"d")
    storage.append("batches/x/0.10.log", 0, b"other")
    assert storage.log("batches/x/0.1.log") == b"aaaabbccd"
    storage.delete_folder("batches/x")
    storage.delete_folder("batches/x")
    assert storage.log("batches/x/0.1.log") == b""
    assert storage.log("batches/x/0.10.log") == b""


USES: tuple[Callable[[Storage], None], ...] = (objects, abandoned, logs)


@pytest.mark.parametrize("use", USES)
def test_a_folder(tmp_path: Path, use: Callable[[Storage], None]) -> None:
    use(LocalStorage(str(tmp_path / "files")))


@pytest.mark.servers
async def test_an_s3_server_also_when_it_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with s3_server(tmp_path) as server:
        storage = S3Storage(f"s3://{BUCKET}/some/prefix", server.config)
        for use in USES:
            await asyncio.to_thread(use, storage)
        wrong = server.config.model_copy(update={"secret": server.config.key_id})
        with pytest.raises(StorageError, match="403"):
            await asyncio.to_thread(stored, S3Storage(f"s3://{BUCKET}", wrong), "a", b"1")
        short = server.config.model_copy(update={"timeout": 0.2})
        server.signal(signal.SIGSTOP)
        with pytest.raises(StorageError):
            await asyncio.to_thread(stored, S3Storage(f"s3://{BUCKET}", short), "a", b"1")
        server.signal(signal.SIGCONT)
        await asyncio.to_thread(stored, storage, "again", b"1")
        assert s3_storage.PART >= 5 << 20

"""Buckets of a real S3 server, and what is listed and read of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.stores.cache import StoreCache
from adapters.stores.places import source_of
from adapters.stores.pull import Puller
from adapters.stores.source import StoreError
from config.stores import address_of
from gateway.features.batches.s3.client import S3Client
from tests.support.s3 import BUCKET, KEY_ID, SECRET, S3Server, s3_server
from tests.support.stores import tar_of

pytestmark = pytest.mark.processes


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Server]:
    async with s3_server(tmp_path) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield running


async def test_a_folder_of_a_bucket_is_pulled_and_followed(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = S3Client(server.config, BUCKET)
    for name, body in {"models/m/1/w": b"1" * 3_000_000, "models/m/a b&ü.txt": b"y", "models2/n": b"n"}.items():
        client.send("PUT", name, body=body)
    puller = Puller("p", source_of(address_of(f"s3://{BUCKET}/models")), StoreCache(tmp_path / "cache", 20 << 20))
    pulled = await puller.pull()
    assert {str(path.relative_to(pulled.view)) for path in pulled.view.rglob("*") if path.is_file()} == {
        "m/1/w", "m/a b&ü.txt",
    }  # fmt: skip
    assert (await puller.pull()).transferred == 0
    client.send("PUT", "models/m/1/w", body=b"2" * 10)
    again = await puller.pull()
    assert again.transferred == 10
    assert (again.view / "m/1/w").read_bytes() == b"2" * 10

    archive = tar_of({"m/1/w": b"packed"})
    client.send("PUT", "wine.tar.gz", body=archive)
    packed = Puller("q", source_of(address_of(f"s3://{BUCKET}/wine.tar.gz")), StoreCache(tmp_path / "cache", 20 << 20))
    assert ((await packed.pull()).view / "m/1/w").read_bytes() == b"packed"

    source = source_of(address_of(f"s3://{BUCKET}/models"))
    (first, *_) = [item for item in await source.items() if item.path == "m/1/w"]
    assert b"".join([chunk async for chunk in source.read(first, 4)]) == b"2" * 6
    client.send("PUT", "models/m/1/w", body=b"3" * 10)
    with pytest.raises(StoreError, match="has changed"):
        [chunk async for chunk in source.read(first, 4)]

    with pytest.raises(StoreError, match="no file"):
        await Puller("none", source_of(address_of(f"s3://{BUCKET}/none")), StoreCache(tmp_path / "c", 1)).pull()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError) as refused:
        await source_of(address_of(f"s3://{BUCKET}/models")).items()
    assert "wrong" not in str(refused.value)

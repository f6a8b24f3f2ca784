"""Archives at HTTP servers: seen to change by their ETag, continued, and never mixed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.stores.cache import StoreCache
from adapters.stores.http import Http
from adapters.stores.places import source_of
from adapters.stores.pull import Puller
from adapters.stores.source import StoreError
from config.stores import address_of
from tests.support.stores import WebServer, tar_of, web_server, zip_of

pytestmark = pytest.mark.realtime
OLD = tar_of({"m/1/w": b"old" * 100_000}, "")
NEW = tar_of({"m/1/w": b"new" * 100_000}, "")


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as running:
        yield running


@pytest.fixture
async def puller(server: WebServer, tmp_path: Path) -> AsyncIterator[Puller]:
    server.files["/m.tar"] = OLD
    source = source_of(address_of(f"{server.url}/m.tar"))
    yield Puller("p", source, StoreCache(tmp_path, 10 << 20))
    await source.aclose()


async def test_an_archive_is_pulled_when_its_tag_changes(server: WebServer, puller: Puller) -> None:
    view = (await puller.pull()).view
    assert (view / "m/1/w").read_bytes() == b"old" * 100_000
    await puller.pull()
    server.files["/m.tar"] = NEW
    assert ((await puller.pull()).view / "m/1/w").read_bytes() == b"new" * 100_000
    assert [method for method, _, _ in server.requests] == ["HEAD", "GET", "HEAD", "HEAD", "GET"]


async def test_a_body_that_breaks_off_is_continued(server: WebServer, puller: Puller) -> None:
    server.cut_after = 100_000
    pulled = await puller.pull()
    assert (pulled.view / "m/1/w").read_bytes() == b"old" * 100_000
    ranges = [requested for method, _, requested in server.requests if method == "GET"]
    assert len(ranges) > 3
    assert ranges[0] == ""
    assert pulled.transferred == len(OLD)


async def test_a_server_without_ranges_sends_it_again_and_the_pull_still_ends(
    server: WebServer, puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.transfer.ATTEMPTS", 1)
    server.cut_after = 100_000
    with pytest.raises(StoreError, match="ended early"):
        await puller.pull()
    server.cut_after, server.ranges = None, False
    assert ((await puller.pull()).view / "m/1/w").read_bytes() == b"old" * 100_000


async def test_a_body_that_changes_in_the_middle_is_never_mixed(
    server: WebServer, puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.transfer.ATTEMPTS", 1)
    server.cut_after = 100_000
    with pytest.raises(StoreError):
        await puller.pull()
    server.cut_after = None
    server.files["/m.tar"] = NEW
    assert ((await puller.pull()).view / "m/1/w").read_bytes() == b"new" * 100_000


@pytest.mark.parametrize("archive", [OLD, NEW])
async def test_the_digest_of_the_address_is_demanded(server: WebServer, tmp_path: Path, archive: bytes) -> None:
    import hashlib

    server.files["/m.tar"] = archive
    digest = hashlib.sha256(OLD).hexdigest()
    source = source_of(address_of(f"{server.url}/m.tar#sha256={digest}"))
    puller = Puller("p", source, StoreCache(tmp_path, 10 << 20))
    if archive is OLD:
        assert (await puller.pull()).files == 1
    else:
        with pytest.raises(StoreError, match="differs from its digest"):
            await puller.pull()
    await source.aclose()


async def test_an_archive_without_a_tag_is_pulled_once_in_a_process(
    server: WebServer, puller: Puller, caplog: pytest.LogCaptureFixture
) -> None:
    server.tagged = False
    await puller.pull()
    await puller.pull()
    assert [method for method, _, _ in server.requests] == ["HEAD", "GET", "HEAD"]
    assert "only then" in caplog.text


async def test_a_missing_archive_is_an_error_without_the_query(server: WebServer, tmp_path: Path) -> None:
    source = source_of(address_of(f"{server.url}/none.zip?signature=hunter2"))
    with pytest.raises(StoreError, match="404") as error:
        await Puller("p", source, StoreCache(tmp_path, 1 << 20)).pull()
    assert "hunter2" not in str(error.value)
    await source.aclose()


async def test_an_archive_that_is_refused_is_named_without_the_query(server: WebServer, tmp_path: Path) -> None:
    for content, message in ((b"no archive", "cannot be unpacked"), (zip_of({"../x": b"x"}), "is refused")):
        server.files["/m.zip"] = content
        source = source_of(address_of(f"{server.url}/m.zip?signature=hunter2"))
        with pytest.raises(StoreError, match=f"/m.zip {message}") as error:
            await Puller("p", source, StoreCache(tmp_path, 1 << 20)).pull()
        assert "hunter2" not in str(error.value)
        await source.aclose()


async def test_an_answer_that_is_no_http_is_an_error_without_the_query_of_a_redirect() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested = await reader.readuntil(b"\r\n\r\n")
        where = (
            b"HTTP/1.1 302 Found\r\nlocation: /b?signature=hunter2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        writer.write(where if requested.startswith(b"GET /a") else b"HTTP/1.1 200 OK\r\nno field\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as running:
        url = f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/a"
        http = Http()
        with pytest.raises(StoreError, match=r"/a: ClientResponseError 400$") as error:
            await http.json(url)
        assert "hunter2" not in str(error.value)
        await http.aclose()


async def test_a_zip_on_the_disk_is_pulled_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    path.write_bytes(zip_of({"m/1/w": b"1"}))
    puller = Puller("p", source_of(address_of(f"file://{path}")), StoreCache(tmp_path / "cache", 1 << 20))
    assert ((await puller.pull()).view / "m/1/w").read_bytes() == b"1"
    path.write_bytes(zip_of({"m/1/w": b"22"}))
    assert ((await puller.pull()).view / "m/1/w").read_bytes() == b"22"

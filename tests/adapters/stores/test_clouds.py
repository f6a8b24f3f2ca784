"""Buckets of Google Cloud Storage and Azure, as their published protocols answer lists and ranges."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from aiohttp import web
from obstore import exceptions

from adapters.credentials.google import GoogleToken
from adapters.credentials.renewed import Issued, RenewalError
from adapters.stores import objects
from adapters.stores.cache import StoreCache
from adapters.stores.places import source_of
from adapters.stores.pull import Puller
from adapters.stores.source import StoredObject, StoreError
from config.stores import address_of

pytestmark = pytest.mark.realtime
FILES = {"models/m/1/w": b"w" * 1000, "models/m/x.txt": b"x", "models/m": b"", "modelsx": b"no"}
TIME = "Sun, 29 Nov 2026 08:00:00 GMT"


class Cloud:
    """Both protocols. Google's list is that of S3; Azure's has tags without quotes."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.keys: list[str] = []
        """The credentials of the requests."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("authorization", ""))
        name = request.path.partition("/bucket")[2].strip("/")
        if not name:
            return web.Response(text=self._list(request), content_type="application/xml")
        if name not in self.files:
            return web.Response(status=404)
        content = self.files[name]
        headers = {"etag": f'"{tag(content)}"', "last-modified": TIME}
        if request.headers.get("if-match", headers["etag"]) != headers["etag"]:
            return web.Response(status=412)
        start = request.headers.get("range") or request.headers.get("x-ms-range", "")
        if not start:
            return web.Response(body=content, headers=headers)
        first = int(start.removeprefix("bytes=").partition("-")[0])
        headers["content-range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        return web.Response(status=206, body=content[first:], headers=headers)

    def _list(self, request: web.Request) -> str:
        prefix = request.query.get("prefix", "")
        there = [(escape(name), content) for name, content in self.files.items() if name.startswith(prefix)]
        if request.query.get("comp") == "list":
            blobs = "".join(
                f"<Blob><Name>{name}</Name><Properties><Last-Modified>{TIME}</Last-Modified><Etag>{tag(content)}</Etag>"
                f"<Content-Length>{len(content)}</Content-Length><Content-Type>x</Content-Type></Properties></Blob>"
                for name, content in there
            )
            return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
        entries = "".join(
            f"<Contents><Key>{name}</Key><LastModified>2026-11-29T08:00:00Z</LastModified>"
            f'<ETag>"{tag(content)}"</ETag><Size>{len(content)}</Size></Contents>'
            for name, content in there
        )
        return f"<ListBucketResult>{entries}</ListBucketResult>"


def tag(content: bytes) -> str:
    return f"0x{hashlib.sha256(content).hexdigest()[:15].upper()}"


@asynccontextmanager
async def serving(cloud: Cloud) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", cloud.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture(params=["gs", "az"])
async def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Cloud, str]]:
    cloud = Cloud()
    async with serving(cloud) as url:
        if request.param == "gs":
            monkeypatch.setenv("GOOGLE_BASE_URL", url)
        else:
            monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", url)
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        yield cloud, f"{request.param}://bucket/models"


async def test_a_folder_is_pulled_with_a_token(
    cloud: tuple[Cloud, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of_google(*_: object) -> Issued[GoogleToken]:
        return Issued(GoogleToken("a-token", ""), 3600.0)

    async def of_azure(*_: object) -> Issued[str]:
        return Issued("a-token", 3600.0)

    monkeypatch.setattr(objects, "google_token", of_google)
    monkeypatch.setattr(objects, "entra_token", of_azure)
    server, address = cloud
    puller = Puller("p", source_of(address_of(address)), StoreCache(tmp_path, 1 << 20))
    view = (await puller.pull()).view
    assert {str(path.relative_to(view)) for path in view.rglob("*") if path.is_file()} == {"m/1/w", "m/x.txt"}
    assert set(server.keys) == {"Bearer a-token"}
    server.files["models/m/x.txt"] = b"changed"
    assert (await puller.pull()).transferred == 7


async def test_a_read_goes_on_at_an_offset_and_notices_a_change(
    cloud: tuple[Cloud, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    server, address = cloud
    source = source_of(address_of(address))
    (item,) = [one for one in await source.items() if one.path == "m/1/w"]
    assert b"".join([chunk async for chunk in source.read(item, 990)]) == b"w" * 10
    server.files["models/m/1/w"] = b"v" * 1000
    with pytest.raises(StoreError, match="has changed"):
        [chunk async for chunk in source.read(item, 990)]
    assert set(server.keys) == {""}


async def test_a_credential_that_cannot_be_made_is_the_reason(
    cloud: tuple[Cloud, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> None:
        raise RenewalError("there is no identity")

    monkeypatch.setattr(objects, "google_token", failing)
    monkeypatch.setattr(objects, "entra_token", failing)
    with pytest.raises(StoreError, match="no credential: there is no identity"):
        await source_of(address_of(cloud[1])).items()


async def test_an_error_has_neither_the_query_of_its_url_nor_the_body(
    cloud: tuple[Cloud, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> None:
        body = "<Error><StringToSign>hunter2</StringToSign></Error>"
        raise exceptions.GenericError(f"error of (https://a.example.com/b?signature=hunter2): 403 Forbidden: {body}")

    monkeypatch.setattr("obstore.get_async", failing)
    item = StoredObject("m/1/w", "models/m/1/w", "1", 1000)
    with pytest.raises(StoreError, match="403 Forbidden") as error:
        [chunk async for chunk in source_of(address_of(cloud[1])).read(item, 0)]
    assert "hunter2" not in str(error.value)

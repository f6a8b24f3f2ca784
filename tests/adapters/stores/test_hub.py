"""Projects of the hub, from a server that answers as the hub does: large files elsewhere, digests in the list."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapters.stores.cache import StoreCache
from adapters.stores.places import source_of
from adapters.stores.pull import Pulled, Puller
from adapters.stores.source import StoreError
from config.stores import address_of
from tests.support.stores import WebServer, web_server

pytestmark = pytest.mark.realtime


class Hub:
    """One project. Files of more than 100 bytes are large, and are at another server."""

    def __init__(self, storage: WebServer) -> None:
        self.files: dict[str, bytes] = {"config.json": b"{}", ".gitattributes": b"x", "onnx/model.onnx": b"m" * 5000}
        self.storage = storage
        self.tokens: list[str] = []
        self.url = ""

    async def revision(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("authorization", ""))
        if request.match_info["revision"] not in ("main", "refs/pr/1"):
            return web.json_response({"error": "Invalid rev id"}, status=404)
        assert request.query["blobs"] == "true"
        siblings = [self._sibling(name, content) for name, content in self.files.items()]
        return web.json_response({"id": "org/name", "sha": self.commit, "siblings": siblings})

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(self.files).encode()).hexdigest()

    def _sibling(self, name: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
        if len(content) > 100:
            sha256 = hashlib.sha256(content).hexdigest()
            sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
        return sibling

    async def resolve(self, request: web.Request) -> web.Response:
        name = request.match_info["path"]
        content = self.files[name]
        assert request.match_info["commit"] == self.commit
        if len(content) <= 100:
            return web.Response(body=content)
        self.storage.files[f"/blob/{name}"] = content
        return web.Response(status=302, headers={"location": f"{self.storage.url}/blob/{name}?signature=1"})


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    async with web_server() as storage:
        hub = Hub(storage)
        application = web.Application()
        application.router.add_get("/api/models/org/name/revision/{revision:.*}", hub.revision)
        application.router.add_get("/org/name/resolve/{commit}/{path:.*}", hub.resolve)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "a-token")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub
        await runner.cleanup()


async def pulled(address: str, cache: Path) -> Pulled:
    source = source_of(address_of(address))
    try:
        return await Puller(address, source, StoreCache(cache, 1 << 20)).pull()
    finally:
        await source.aclose()


def files(view: Path) -> set[str]:
    return {str(path.relative_to(view)) for path in view.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("address", "paths"),
    [
        ("hf://org/name", {"config.json", "onnx/model.onnx"}),
        ("hf://org/name@refs%2Fpr%2F1", {"config.json", "onnx/model.onnx"}),
        ("hf://org/name/onnx", {"model.onnx"}),
        ("hf://org/name@main/onnx/model.onnx", {"model.onnx"}),
    ],
)
async def test_a_project_is_pulled(hub: Hub, tmp_path: Path, address: str, paths: set[str]) -> None:
    assert files((await pulled(address, tmp_path)).view) == paths
    assert set(hub.tokens) == {"Bearer a-token"}
    assert all("Authorization" not in fields for fields in hub.storage.fields)


async def test_only_changed_files_of_a_new_commit_are_pulled(hub: Hub, tmp_path: Path) -> None:
    await pulled("hf://org/name", tmp_path)
    hub.files["config.json"] = b'{"a": 1}'
    again = await pulled("hf://org/name", tmp_path)
    assert again.transferred == 8
    assert (again.view / "config.json").read_bytes() == b'{"a": 1}'


@pytest.mark.parametrize("name", ["config.json", "onnx/model.onnx"])
async def test_a_file_that_differs_from_its_digest_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    right = hub._sibling(name, hub.files[name])
    wrong = hub.files[name][:-1] + b"!"
    other = {**hub.files, name: wrong}

    def sibling(each: str, content: bytes) -> dict[str, Any]:
        return right if each == name else Hub._sibling(hub, each, content)

    monkeypatch.setattr(hub, "files", other)
    monkeypatch.setattr(hub, "_sibling", sibling)
    with pytest.raises(StoreError, match="differs from its digest"):
        await pulled("hf://org/name", tmp_path)


@pytest.mark.parametrize("address", ["hf://org/name@none", "hf://org/name/none", "hf://org/other"])
async def test_a_missing_file_or_revision_is_an_error(hub: Hub, tmp_path: Path, address: str) -> None:
    with pytest.raises(StoreError, match=r"404|no such file"):
        await pulled(address, tmp_path)


@pytest.mark.parametrize("answer", [[], {}, {"sha": "1"}, {"sha": "1", "siblings": [{"rfilename": "x"}]}])
async def test_an_answer_of_another_form_is_an_error(hub: Hub, tmp_path: Path, answer: object) -> None:
    from adapters.stores import hub as module

    source = module.HubProject(address_of("hf://org/name"))

    async def json(*_: object) -> tuple[object, dict[str, str]]:
        return answer, {}

    source._http.json = json  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreError, match="another form"):
        await source.items()


async def test_an_offline_hub_receives_no_request(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(StoreError, match="forbids"):
        await pulled("hf://org/name", tmp_path)
    assert hub.tokens == []

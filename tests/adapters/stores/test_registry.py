"""Logins, digests and forms of OCI registries."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from adapters.stores.cache import StoreCache
from adapters.stores.places import source_of
from adapters.stores.pull import Pulled, Puller
from adapters.stores.source import StoreError
from config.stores import address_of
from tests.support.registries import LAYER, digest_of, layer_of, manifest_of
from tests.support.stores import tar_of, zstd_of

pytestmark = pytest.mark.realtime
LOGIN = base64.b64encode(b"user:password").decode()


class StubRegistry:
    """One image behind a login. A token is good for `uses` requests."""

    def __init__(self) -> None:
        self.manifest, blobs = manifest_of([layer_of({"models/1/w": b"w"}), layer_of({"models/1/x": b"x"})])
        self.blobs = {digest_of(blob): blob for blob in blobs}
        self.host = ""
        self.scheme = "Bearer"
        self.uses = 100
        self.left = 0
        self.tokens: list[tuple[str, str]] = []
        """The scope and the login of each request for a token."""

    def _refused(self, request: web.Request) -> web.Response | None:
        given = request.headers.get("authorization", "")
        good = given == f"Basic {LOGIN}" if self.scheme == "Basic" else given == "Bearer a-token" and self.left > 0
        if good:
            self.left -= 1
            return None
        realm = f'realm="http://{self.host}/token",service="stub",scope="repository:team/wine:pull"'
        return web.Response(status=401, headers={"www-authenticate": f"{self.scheme} {realm}"})

    async def token(self, request: web.Request) -> web.Response:
        self.tokens.append((request.query["scope"], request.headers.get("authorization", "")))
        self.left = self.uses
        return web.json_response({"token": "a-token"})

    async def manifests(self, request: web.Request) -> web.Response:
        return self._refused(request) or web.Response(body=self.manifest)

    async def blob(self, request: web.Request) -> web.Response:
        return self._refused(request) or web.Response(body=self.blobs[request.match_info["digest"]])


@pytest.fixture
async def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[StubRegistry]:
    stub = StubRegistry()
    application = web.Application()
    application.router.add_get("/token", stub.token)
    application.router.add_get("/v2/team/wine/manifests/{reference}", stub.manifests)
    application.router.add_get("/v2/team/wine/blobs/{digest}", stub.blob)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stub.host = f"127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    yield stub
    await runner.cleanup()


async def pulled(stub: StubRegistry, folder: Path, reference: str = ":v1") -> Pulled:
    source = source_of(address_of(f"oci://{stub.host}/team/wine{reference}"))
    try:
        return await Puller("p", source, StoreCache(folder / "cache", 1 << 20)).pull()
    finally:
        await source.aclose()


@pytest.mark.parametrize("uses", [100, 1])
async def test_a_token_follows_the_challenge_and_is_renewed(
    stub: StubRegistry, tmp_path: Path, uses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.pull.PARALLEL", 1)
    stub.uses = uses
    assert (await pulled(stub, tmp_path)).files == 2
    assert stub.tokens == [("repository:team/wine:pull", "")] * (1 if uses > 1 else 3)


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
async def test_a_login_is_that_of_docker(
    stub: StubRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    stub.scheme = scheme
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", json.dumps({"auths": {stub.host: {"auth": LOGIN}}}))
    assert (await pulled(stub, tmp_path)).files == 2
    assert [login for _, login in stub.tokens] == ([f"Basic {LOGIN}"] if scheme == "Bearer" else [])


async def test_a_login_of_another_registry_is_not_sent(
    stub: StubRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.scheme = "Basic"
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", json.dumps({"auths": {"registry.example.com": {"auth": LOGIN}}}))
    with pytest.raises(StoreError, match="DOCKER_AUTH_CONFIG"):
        await pulled(stub, tmp_path)


async def test_a_blob_or_manifest_that_differs_from_its_digest_is_refused(stub: StubRegistry, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="manifest differs"):
        await pulled(stub, tmp_path, f"@sha256:{'0' * 64}")
    for digest, blob in stub.blobs.items():
        stub.blobs[digest] = blob[:-1] + bytes([blob[-1] ^ 1])
    with pytest.raises(StoreError, match="differs from its digest"):
        await pulled(stub, tmp_path)


@pytest.mark.parametrize(
    "whiteouts",
    [
        {".wh.models": b""},
        {"./.wh..wh..opq": b""},
        {"models/.wh..wh..opq": b""},
        {".wh..wh..opq": b"", ".wh.models": b"", "models/.wh..wh..opq": b"", "etc/.wh.passwd": b""},
        {"models/.wh.1": b""},
    ],
)
async def test_a_layer_removes_all_models_of_the_layers_below(
    stub: StubRegistry, tmp_path: Path, whiteouts: dict[str, bytes]
) -> None:
    layers = [layer_of({"models/1/w": b"old", "models/1/x": b"old"}), layer_of({**whiteouts, "models/1/w": b"new"})]
    stub.manifest, blobs = manifest_of(layers)
    stub.blobs = {digest_of(blob): blob for blob in blobs}
    view = (await pulled(stub, tmp_path)).view
    assert {str(path.relative_to(view)) for path in view.rglob("*") if path.is_file()} == {"1/w"}
    assert (view / "1/w").read_bytes() == b"new"


async def test_whiteouts_of_other_folders_remove_no_model(stub: StubRegistry, tmp_path: Path) -> None:
    others = {".wh.models2": b"", "etc/.wh..wh..opq": b"", "etc/.wh.models": b""}
    stub.manifest, blobs = manifest_of([layer_of({"models/1/w": b"w"}), layer_of(others)])
    stub.blobs = {digest_of(blob): blob for blob in blobs}
    assert ((await pulled(stub, tmp_path)).view / "1/w").read_bytes() == b"w"


async def test_a_layer_may_be_compressed_by_zstd(stub: StubRegistry, tmp_path: Path) -> None:
    layer = zstd_of(tar_of({"models/1/w": b"w" * 100_000}, ""))
    stub.manifest, blobs = manifest_of([layer], kind=LAYER.replace("gzip", "zstd"))
    stub.blobs = {digest_of(blob): blob for blob in blobs}
    assert ((await pulled(stub, tmp_path)).view / "1/w").read_bytes() == b"w" * 100_000


@pytest.mark.parametrize(
    "manifest",
    [
        b"no JSON",
        b"[]",
        b"{}",
        b'{"layers": 3}',
        b'{"layers": [{}]}',
        json.dumps({"layers": [{"mediaType": LAYER, "digest": "md5:1", "size": 1}]}).encode(),
        json.dumps({"layers": [{"mediaType": "x", "digest": f"sha256:{'0' * 64}", "size": 1}]}).encode(),
        json.dumps({"manifests": []}).encode(),
        json.dumps({"manifests": [{"digest": "x"}]}).encode(),
        manifest_of([layer_of({"models/../../x": b"x"})])[0],
        manifest_of([b"x"], kind="application/octet-stream", titles=("../x",))[0],
    ],
)
async def test_an_image_of_another_form_is_refused(stub: StubRegistry, tmp_path: Path, manifest: bytes) -> None:
    evil = layer_of({"models/../../x": b"x"})
    stub.manifest = manifest
    stub.blobs |= {digest_of(evil): evil, digest_of(b"x"): b"x"}
    with pytest.raises(StoreError):
        await pulled(stub, tmp_path)
    assert StoreCache(tmp_path / "cache", 1 << 20).current("p") is None

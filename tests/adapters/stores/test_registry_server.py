"""Images of a real registry."""

import hashlib
import json
from pathlib import Path

import pytest

from adapters.stores.cache import StoreCache
from adapters.stores.places import source_of
from adapters.stores.pull import Pulled, Puller
from config.stores import address_of
from tests.support.registries import INDEX, MANIFEST, digest_of, layer_of, manifest_of, registry

pytestmark = pytest.mark.processes


async def pulled(address: str, folder: Path) -> Pulled:
    source = source_of(address_of(address))
    try:
        return await Puller(address, source, StoreCache(folder / "cache", 1 << 20)).pull()
    finally:
        await source.aclose()


async def test_an_image_of_models_is_pulled_and_followed(tmp_path: Path) -> None:
    base = layer_of({"etc/passwd": b"root", "models/m/1/w": b"old", "models/m/1/gone": b"x"})
    top = layer_of({"models/m/1/w": b"new", "models/m/1/.wh.gone": b"", "models/m/model.yaml": b"backend: python\n"})
    with registry(tmp_path) as server:
        manifest, blobs = manifest_of([base, top])
        server.push("team/wine", "v1", manifest, blobs)
        address = f"oci://{server.host}/team/wine:v1"
        first = await pulled(address, tmp_path)
        files = {
            str(path.relative_to(first.view)): path.read_bytes() for path in first.view.rglob("*") if path.is_file()
        }
        assert files == {"m/1/w": b"new", "m/model.yaml": b"backend: python\n"}
        assert (await pulled(address, tmp_path)).view == first.view

        changed = layer_of({"models/m/1/w": b"newest"})
        server.push("team/wine", "v1", *manifest_of([base, top, changed]))
        again = await pulled(address, tmp_path)
        assert (again.view / "m/1/w").read_bytes() == b"newest"
        assert again.transferred == len(changed)

        by_digest = f"oci://{server.host}/team/wine@{digest_of(manifest)}"
        assert (await pulled(by_digest, tmp_path)).files == 2

        described = {"mediaType": MANIFEST, "digest": digest_of(manifest), "size": len(manifest)}
        linux = {**described, "platform": {"os": "linux", "architecture": "arm64"}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [linux]}
        server.push("team/wine", "many", json.dumps(index).encode(), [], INDEX)
        assert (await pulled(f"oci://{server.host}/team/wine:many", tmp_path)).files == 2

        weights = hashlib.sha256(b"seed").digest() * 100
        artifact = manifest_of([weights], kind="application/octet-stream", titles=("1/model.onnx",))
        server.push("team/file", "latest", *artifact)
        view = (await pulled(f"oci://{server.host}/team/file", tmp_path)).view
        assert (view / "1/model.onnx").read_bytes() == weights

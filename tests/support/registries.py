"""Images of models: their layers and manifests, and a real registry of the test's own (Debian's docker-registry)."""

import gzip
import hashlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.debian import binary
from tests.support.stores import tar_of

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer_of(files: Mapping[str, bytes]) -> bytes:
    return gzip.compress(tar_of(files, ""), mtime=0)


def manifest_of(layers: list[bytes], *, kind: str = LAYER, titles: tuple[str, ...] = ()) -> tuple[bytes, list[bytes]]:
    """The manifest of an image with these layers, and all blobs that it needs."""
    config = b"{}"
    described: list[dict[str, Any]] = [
        {"mediaType": kind, "digest": digest_of(layer), "size": len(layer)} for layer in layers
    ]
    for entry, title in zip(described, titles, strict=False):
        entry["annotations"] = {"org.opencontainers.image.title": title}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(config), "size": 2},
        "layers": described,
    }
    return json.dumps(manifest).encode(), [config, *layers]


class Registry:
    """A registry at `host`."""

    def __init__(self, host: str) -> None:
        self.host = host

    def push(self, image: str, tag: str, manifest: bytes, blobs: list[bytes], kind: str = MANIFEST) -> None:
        """Push an image as the distribution API describes it."""
        for blob in blobs:
            location = self._send("POST", f"/v2/{image}/blobs/uploads/", b"", {})
            separator = "&" if "?" in location else "?"
            target = f"{location}{separator}digest={digest_of(blob)}"
            self._send("PUT", target, blob, {"content-type": "application/octet-stream"})
        self._send("PUT", f"/v2/{image}/manifests/{tag}", manifest, {"content-type": kind})

    def _send(self, method: str, where: str, body: bytes, headers: Mapping[str, str]) -> str:
        url = where if where.startswith("http") else f"http://{self.host}{where}"
        request = urllib.request.Request(url, body, dict(headers), method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(response.headers.get("location") or "")


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A real registry on loopback."""
    program = binary("docker-registry", "docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (folder / "registry.json").write_text(json.dumps(settings))  # JSON is YAML
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", folder / "registry.json"], stdout=log, stderr=log)
    try:
        while not _answers(port):
            assert process.poll() is None, (folder / "registry.log").read_text()[-2000:]
            time.sleep(0.05)
        yield Registry(f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=60).close()
    except (urllib.error.URLError, OSError):
        return False
    return True

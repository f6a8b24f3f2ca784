"""A real TorchServe with its tokens on: `with torchserve() as server`."""

import contextlib
import json
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.peers import torchserve as peer
from loadtests.servers import Launch, StartError
from tests.servers.started import Started, answers, started

HANDLER = Path(__file__).parent / "programs/torchserve_handler.py"
MODEL = {**peer.MODEL, "marName": "probe.mar", "batchSize": 1}
VERSION = "0.12.0"
QUEUE = 2
"""The number of requests that wait beside the running one; further requests are refused."""
WORKER_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class TorchServe:
    """A running TorchServe, whose model `probe` follows the options of each request."""

    server: Started
    keys: dict[str, str]

    @property
    def url(self) -> str:
        return self.server.url(0)

    @property
    def grpc(self) -> str:
        return self.server.url(3)

    @property
    def management_port(self) -> int:
        return self.server.ports[1]

    def pool(self, protocol: str = "torchserve", **options: Any) -> dict[str, Any]:
        """How a pool of it is."""
        return self._pool(protocol, options, self.keys)

    def written(self, folder: Path, protocol: str = "torchserve", **options: Any) -> dict[str, Any]:
        """The same in a file, which has no secrets in it."""
        for name, key in self.keys.items():
            (folder / name).touch(0o600)
            (folder / name).write_text(key)
        return self._pool(protocol, options, {name: f"file:{folder / name}" for name in self.keys})

    def _pool(self, protocol: str, options: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        managed: dict[str, Any] = {"name": protocol, "management_port": self.management_port, **options}
        if not keys:
            return {"protocol": managed}
        return {"protocol": {**managed, "management_key": keys["management"]}, "key": keys["inference"]}


@contextlib.contextmanager
def torchserve(*, tokens: bool = True) -> Iterator[TorchServe]:
    """Started on free ports, ready when its model has a worker."""
    launch, status = partial(_launch, tokens), 400 if tokens else 200
    with started("torchserve", peer.install, launch, ports=5, ready="/ping", status=status) as server:
        keys = json.loads((server.folder / "key_file.json").read_text()) if tokens else {}
        made = TorchServe(server, {name: keys[name]["key"] for name in ("inference", "management") if tokens})
        end = time.monotonic() + WORKER_SECONDS
        key = keys["management"]["key"] if tokens else ""
        while not answers(made.management_port, "/models/probe", words=b'"READY"', key=key):
            if time.monotonic() > end:
                raise StartError(f"torchserve has no worker:\n{server.log()}")
            time.sleep(0.1)
        yield made


def _launch(tokens: bool, folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    for name, version in (("probe", "1.0"), ("probe-next", "2.0")):
        _archive(folder / f"{name}.mar", version)
    inference, management, metrics, grpc, grpc_management = ports
    lines = [
        f"inference_address=http://127.0.0.1:{inference}",
        f"management_address=http://127.0.0.1:{management}",
        f"metrics_address=http://127.0.0.1:{metrics}",
        f"grpc_inference_address=127.0.0.1\ngrpc_inference_port={grpc}",
        f"grpc_management_address=127.0.0.1\ngrpc_management_port={grpc_management}",
        f"model_store={folder}\nload_models=probe.mar\nmodels={json.dumps({'probe': {'1.0': MODEL}})}",
        f"enable_model_api=true\ninstall_py_dep_per_model=false\ndefault_workers_per_model=1\njob_queue_size={QUEUE}",
        f"disable_token_authorization={'false' if tokens else 'true'}",
    ]
    (folder / "config.properties").write_text("\n".join(lines) + "\n")
    return peer.java(folder, venv)


def _archive(path: Path, version: str) -> None:
    """Write an archive as `torch-model-archiver` does."""
    model = {"modelName": "probe", "handler": HANDLER.name, "modelVersion": version}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
        archive.write(HANDLER, HANDLER.name)

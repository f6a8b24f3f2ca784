"""A real Envoy in front of the endpoint picker."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from loadtests.peers.envoy import ENVOY
from loadtests.peers.envoy_picker import configuration
from loadtests.servers import Launch
from tests.servers.started import Started, started


@contextlib.contextmanager
def envoy(picker: str, endpoints: Sequence[str], **options: Any) -> Iterator[Started]:
    """A running Envoy; port 1 is that of its listener for clients."""

    def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
        file = folder / "envoy.yaml"
        file.write_text(yaml.safe_dump(configuration(picker, ports, endpoints, **options), sort_keys=False))
        flags = ["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "--use-dynamic-base-id"]
        return Launch([str(venv / "bin/envoy"), "--config-path", str(file), *flags])

    with started("envoy", ENVOY.prepare, launch, ports=2, ready="/ready") as server:
        yield server

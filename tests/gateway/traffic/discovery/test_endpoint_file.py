import json
import os
from pathlib import Path

import pytest

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery import endpoint_file
from gateway.traffic.discovery.target import DiscoveredEndpoint
from tests.gateway.traffic.discovery.following import following, urls
from tests.support.waiting import until

A, B = "http://10.0.0.1:80", "http://10.0.0.2:80"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_file, "LOOK_SECONDS", 0.02)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "endpoints.yaml"


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_the_list_is_followed(path: Path) -> None:
    write(path, f"endpoints:\n  - {A}\n  - {{url: '{B}', weight: 2, zone: eu-1a}}\n")
    async with following(DiscoverConfig(file=str(path))) as endpoints:
        await until(lambda: endpoints.targets)
        assert endpoints.targets == (DiscoveredEndpoint(A), DiscoveredEndpoint(B, 2.0, "eu-1a"))
        write(path, json.dumps({"endpoints": [B]}))
        await until(lambda: urls(endpoints) == [B])
        replaced = path.with_suffix(".new")
        write(replaced, f"endpoints: [{A}]")
        os.replace(replaced, path)
        await until(lambda: urls(endpoints) == [A])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("endpoints: [http://10.0.0.1:80, 10.0.0.2]", "expected http://HOST:PORT"),
        ("endpoints: [http://10.0.0.1:80, {url: 'http://10.0.0.2:80', weight: 0}]", "endpoints.yaml:1: endpoints[1]"),
        (f"endpoints: [{A}, {A}]", "given twice"),
        ("endpoints: [{url: 'http://10.0.0.3:80', wait: 1}]", "wait"),
        (f"[{A}]", "expected fields"),
        ("endpoints: {", "not valid YAML"),
        ("", "is empty"),
        ("\t", ""),
        ("endpoints: [*a]", "not valid YAML"),
        ("endpoints: !!python/object [x]", ""),
    ],
)
async def test_an_invalid_list_changes_nothing_and_is_reported(path: Path, text: str, error: str) -> None:
    write(path, f"endpoints: [{A}, {B}]")
    async with following(DiscoverConfig(file=str(path))) as endpoints:
        await until(lambda: endpoints.targets)
        write(path, text)
        await until(lambda: endpoints.error)
        assert error in endpoints.error
        assert urls(endpoints) == [A, B]
        write(path, f"endpoints: [{B}]")
        await until(lambda: urls(endpoints) == [B])
        assert endpoints.error == ""


async def test_a_removed_file_leaves_its_endpoints_and_a_new_file_is_read(path: Path) -> None:
    async with following(DiscoverConfig(file=str(path))) as endpoints:
        await until(lambda: endpoints.error)
        assert "No such file" in endpoints.error
        write(path, f"endpoints: [{A}]")
        await until(lambda: endpoints.targets)
        os.unlink(path)
        await until(lambda: endpoints.error)
        assert urls(endpoints) == [A]

"""TensorFlow Serving's published client before a gateway process, with its stand-in over both wires behind it."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from loadtests.peers.tfserving import STAND_IN
from tests.servers.tfserving import TfServing, config_of, run, small, tfserving
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

SERVERS = ("rest", "grpc")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TfServing]:
    folder = tmp_path_factory.mktemp("saved") / "half"
    small(folder)
    with tfserving(config_of("half", folder, stable=1)) as server:
        yield server


@pytest.fixture
async def running(theirs: TfServing, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    routes = [{"when": {"header": {"x-server": "grpc"}}, "to": "grpc"}, {"else": True, "to": "rest"}]
    configuration = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [
            {"name": "rest", "protocol": "tfserving", "endpoints": [f"http://{theirs.http}"]},
            {"name": "grpc", "protocol": "tfserving-grpc", "endpoints": [f"http://{theirs.grpc}"]},
        ],
        "models": [{"name": "half", "routes": routes}],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"rows": "100000/d"}}],
    }
    async with gateway(tmp_path, configuration) as made:
        yield made
        await made.until_idle()


@pytest.mark.parametrize("server", SERVERS)
async def test_the_published_client_unchanged(running: GatewayProcess, server: str) -> None:
    """Its requests are forwarded unchanged over gRPC, and encoded anew for REST."""
    key = await running.key()
    printed = json.loads(run(f"{STAND_IN}.client", running.grpc, key, "half", server).splitlines()[-1])
    assert printed == {
        "predict": {"y": [[5, 10], [15, 20]], "sum": [3, 7]},
        "label": {"y": [[3, 6], [9, 12]], "sum": [3, 7]},
        "shout": ["hi3!"],
        "classify": [["cat", "dog", "fish"]],
        "regress": [15],
        "metadata": ["classify", "regress", "serving_default", "shout"],
        "status": [[1, "AVAILABLE"], [2, "AVAILABLE"]],
        "refused": ["UNAUTHENTICATED", "UNAUTHENTICATED"],
    }

"""Runtimes in a real Ray cluster of three nodes, behind a real gateway: nodes, drivers and gateways are killed."""

import contextlib
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtimes.llm.weights.store import resolve
from tests.servers.ray_cluster import RayNodes, ray_cluster
from tests.servers.ray_load import Load, code, is_accepted, streamed

MODELS = Path(__file__).parent / "models"
CHAOS_SECONDS = float(os.environ.get("HEADRACE_CHAOS_SECONDS", "0"))
KILL_EVERY = 30.0
MODEL = "bundled:smollm2-135m-instruct"
COLD = {"first_byte": "5m", "idle": "5m", "total": "5m"}
TRUTHFUL = {"200", "502", "503"}
FETCH = """
import sys, urllib.error, urllib.request
fields = dict(field.split(":") for field in sys.argv[2:])
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=fields)).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
pytestmark = pytest.mark.timeout(1800 + 2 * CHAOS_SECONDS)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_cluster() as nodes:
        yield nodes


@pytest.fixture
def cluster(nodes: RayNodes) -> Iterator[RayNodes]:
    """The cluster; it has no gateway after a test, also after one that failed."""
    try:
        yield nodes
    finally:
        nodes.call("end")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "add_sub/1").mkdir(parents=True)
    shutil.copy(MODELS / "add_sub/config.pbtxt", folder / "add_sub")
    shutil.copy(MODELS / "add_sub/model.py", folder / "add_sub/1")
    return folder


def configured(cluster: RayNodes, repository: Path, **settings: Any) -> dict[str, Any]:
    """A pool `sums` in the cluster."""
    replicas = settings.pop("replicas", 2)
    more = settings.pop("pools", [])
    ray = {"lease": "60s", "key": "file:key.txt", **settings.pop("ray", {})}
    (cluster.server.folder / "key.txt").write_text("of-the-runtimes")
    runtime = cluster.runtime(
        "tensor", ray, repository=str(repository), replicas=replicas, **settings.pop("runtime", {})
    )
    route = {"to": "sums", "retry": {"attempts": 4, "budget": "100%"}, "timeout": {"total": "60s"}}
    return {
        "pools": [{"name": "sums", "runtime": runtime}, *more],
        "models": [{"name": "add_sub", "routes": [route]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        "auth": {"demo_key": True},
        **settings,
    }  # fmt: skip


def demo_key(cluster: RayNodes) -> str:
    """The demo key of the gateway that runs: the log has those of earlier ones too."""

    def accepted() -> str:
        printed: list[str] = re.findall(r"Demo key.*: (hr-\S+)", cluster.server.log(400))
        return printed[-1] if printed and is_accepted(cluster.url, printed[-1]) else ""

    return str(cluster.until(accepted, "no key"))


def driver(gateway: int) -> int:
    """The process id of a gateway's driver; 0 while none runs."""
    for child in psutil.Process(gateway).children():
        with contextlib.suppress(psutil.Error):  # it ends now
            if any("driver.py" in word for word in child.cmdline()):
                return child.pid
    return 0


@pytest.mark.parametrize("workers", [1, 2])
def test_nodes_are_killed_under_load_and_each_failed_call_is_retried_or_refused(
    cluster: RayNodes, repository: Path, workers: int
) -> None:
    cluster.start(configured(cluster, repository, workers=workers))
    try:
        cluster.until_ready("sums", 2)
        with Load(cluster.url, demo_key(cluster)) as load:
            end = time.monotonic() + CHAOS_SECONDS
            kills = 0
            while kills < 2 or time.monotonic() < end:
                load.until_more(200)
                begun = time.monotonic()
                before = set(cluster.servers())
                cluster.call("kill", node=cluster.busy())
                cluster.call("add", cpus=2)
                kills += 1
                cluster.until(lambda: len(cluster.servers()) == 2 and set(cluster.servers()) != before, "no new server")  # noqa: B023
                cluster.until_ready("sums", 2)
                cluster.until(lambda: cluster.spread() == [1, 1], "two replicas share a node")
                time.sleep(max(0.0, min(KILL_EVERY, CHAOS_SECONDS / 4) - (time.monotonic() - begun)))
            load.until_more(200)
        print(f"{kills} nodes killed: {dict(load.results)}, {dict(load.failures)}")
        assert load.wrong == []
        assert set(load.results) <= TRUTHFUL, load.results
    finally:
        cluster.stop()


def test_a_killed_driver_and_a_killed_gateway_find_their_replicas_again(cluster: RayNodes, repository: Path) -> None:
    gateway = cluster.start(configured(cluster, repository))
    cluster.until_ready("sums", 2)
    servers = set(cluster.servers())
    with Load(cluster.url, demo_key(cluster)) as load:
        load.until_more(50)
        first = driver(gateway)
        os.kill(first, signal.SIGKILL)
        cluster.until(lambda: driver(gateway) not in {0, first}, "no new driver")
        cluster.until(lambda: cluster.server.log(400).count("nodes") >= 2, "it is not connected")
        load.until_more(50)
    assert (load.wrong, set(load.results)) == ([], {"200"})
    cluster.stop(signal.SIGKILL)
    cluster.start(configured(cluster, repository))
    try:
        cluster.until_ready("sums", 2)
        assert set(cluster.servers()) == servers
    finally:
        cluster.stop()


def test_ray_client_places_replicas_finds_them_again_and_ends_them(cluster: RayNodes, repository: Path) -> None:
    client = cluster.call("state")["client"]
    spare = {"name": "spare", "endpoints": ["http://127.0.0.1:9"]}
    placed = configured(cluster, repository, ray={"address": client}, pools=[spare])
    without = {**placed, "pools": [spare], "models": [{"name": "add_sub", "routes": [{"to": "spare"}]}]}
    long = configured(cluster, repository, ray={"address": client, "lease": "1h"}, pools=[spare])
    cluster.start(long)
    cluster.until_ready("sums", 2)
    cluster.until(lambda: cluster.spread() == [1, 1], "the replicas are not spread")
    cluster.until(lambda: re.search(r"runtime sums/\d: .* is loaded", cluster.server.log(400)), "a line is missing")
    cluster.write(without)
    cluster.until(lambda: not cluster.servers(), "a replica has no pool and runs")
    cluster.write(placed)
    cluster.until_ready("sums", 2)
    servers = set(cluster.servers())
    with Load(cluster.url, demo_key(cluster)) as load:
        load.until_more(50)
        cluster.call("stop_client")
        cluster.until(lambda: "lost the connection" in cluster.server.log(400), "the connection is not lost")
        load.until_more(50)
        cluster.call("start_client")
        cluster.until(lambda: cluster.server.log(400).count(" nodes") >= 2, "it is not connected")
        load.until_more(50)
    assert (load.wrong, set(load.results)) == ([], {"200"})
    cluster.stop(signal.SIGKILL)
    cluster.start(placed)
    try:
        cluster.until_ready("sums", 2)
        assert set(cluster.servers()) == servers
        lost = cluster.servers()[0]
        cluster.call("kill", node=cluster.busy())
        cluster.call("add", cpus=2)
        cluster.until(lambda: len(cluster.servers()) == 2 and lost not in cluster.servers(), "no new server")
        cluster.until_ready("sums", 2)
        assert code(cluster.url, demo_key(cluster)) == "200"
    finally:
        cluster.stop()


def test_replicas_demand_the_key(cluster: RayNodes, repository: Path) -> None:
    cluster.start(configured(cluster, repository, replicas=1))
    try:
        cluster.until_ready("sums", 1)
        address = re.findall(r"sums runs at (http://\S+)", cluster.server.log(400))[-1]
        assert cluster.inside(FETCH, f"{address}/v2/models/add_sub") == "401"
        assert cluster.inside(FETCH, f"{address}/v2/models/add_sub", "Authorization:Bearer wrong") == "401"
        assert cluster.inside(FETCH, f"{address}/v2/models/add_sub", "Authorization:Bearer of-the-runtimes") == "200"
        assert cluster.inside(FETCH, f"{address}/metrics") == "200"
    finally:
        cluster.stop()


def test_a_runtime_larger_than_any_node_is_reported_once_and_the_others_serve(
    cluster: RayNodes, repository: Path
) -> None:
    large = cluster.runtime("tensor", repository=str(repository), resources={"cpus": 1, "gpus": 4})
    cluster.start(configured(cluster, repository, pools=[{"name": "large", "runtime": large}]))
    try:
        cluster.until_ready("sums", 2)
        failure = cluster.until(lambda: cluster.scale("large")["failure"], "no failure")
        assert "no node of the " in failure
        assert "4 GPU" in failure
        with Load(cluster.url, demo_key(cluster)) as load:
            load.until_more(100)
        assert (load.wrong, set(load.results)) == ([], {"200"})
        assert cluster.server.log(400).count("runtime large on Ray: no node of the ") == 1
        assert 'headrace_replicas{pool="large",state="failing"} 1' in cluster.metrics()
    finally:
        cluster.stop()


def test_more_replicas_than_nodes_share_them_fewer_drain_and_without_a_gateway_all_end(
    cluster: RayNodes, repository: Path
) -> None:
    ray = {"lease": "5s"}
    cluster.start(configured(cluster, repository, ray=ray, replicas=4))
    cluster.until_ready("sums", 4)
    # A node that Ray does not see at that moment makes one more replica share: [1, 1, 2], or [2, 2].
    cluster.until(lambda: sum(cluster.spread()) == 4, "not all replicas run")
    assert len(spread := cluster.spread()) >= 2, spread
    with Load(cluster.url, demo_key(cluster)) as load:
        load.until_more(50)
        cluster.write(configured(cluster, repository, ray=ray, replicas=1))
        cluster.until(lambda: len(cluster.servers()) == 1, "the replica does not end")
        load.until_more(50)
    assert (load.wrong, set(load.results)) == ([], {"200"})
    cluster.stop()
    cluster.until(lambda: not cluster.servers(), "the replica has no gateway and runs")


@pytest.mark.parametrize("workers", [1, 2])
def test_cold_models_start_for_a_request_follow_the_demand_and_stop_when_idle(
    cluster: RayNodes, repository: Path, workers: int
) -> None:
    resolve(MODEL)  # the nodes have no network
    cold = {"min": 0, "idle": "2s", "hold": "2s", "places": 1}
    chat = cluster.runtime("llm", model=MODEL, max_model_len=256, replicas={**cold, "max": 1})
    config = configured(
        cluster, repository, workers=workers, replicas={**cold, "max": 3}, pools=[{"name": "chat", "runtime": chat}]
    )
    config["models"].append({"name": "chat", "routes": [{"to": "chat", "timeout": COLD}]})
    cluster.start(config)
    try:
        key = demo_key(cluster)
        assert cluster.servers() == []
        if workers == 1:
            assert streamed(cluster.url, key, "Write one sentence.").strip()
        with Load(cluster.url, key) as load:
            cluster.until(lambda: cluster.scale("sums")["ready"] == 3, "the demand has no effect")
            assert cluster.spread()[-1:] != [3]
            assert 'headrace_replicas{pool="sums",state="ready"} 3' in cluster.metrics()
            assert "replica" in cluster.scale("sums")["reason"]
            load.until_more(50)
        assert (load.wrong, set(load.results)) == ([], {"200"})
        pools = ("chat", "sums")[workers - 1 :]
        cluster.until(lambda: not any(cluster.scale(pool)["replicas"] for pool in pools), "idle replicas are counted")
        cluster.until(lambda: not cluster.servers(), "idle replicas run")
        for pool in pools:
            assert "no request for 2 s" in cluster.scale(pool)["reason"]
            assert cluster.scale(pool)["start_seconds"] > 0
    finally:
        cluster.stop()


def test_replicas_that_respond_stay_in_use_without_the_head(repository: Path) -> None:
    with ray_cluster(nodes=1) as cluster:
        cluster.start(configured(cluster, repository, replicas=1))
        cluster.until_ready("sums", 1)
        with Load(cluster.url, demo_key(cluster)) as load:
            load.until_more(50)
            cluster.call("stop_head")
            load.until_more(500)
        assert (load.wrong, set(load.results)) == ([], {"200"})
        assert Counter(each["health"] for each in cluster.endpoints("sums")) == {"healthy": 1}
        assert code(cluster.url, demo_key(cluster)) == "200"
        cluster.stop()

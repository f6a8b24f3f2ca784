"""An InferencePool and its pods, from an API server that fails in every way that a cluster does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery.pool_pods import PoolSpec, pod_of, pool_targets, spec_of
from gateway.traffic.discovery.target import DiscoveryError
from tests.gateway.traffic.discovery.following import following, urls
from tests.support.inference_pools import Cluster, cluster, pod, pool
from tests.support.waiting import until

ONE, TWO = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def config(at: Cluster, **fields: Any) -> DiscoverConfig:
    section = {"name": "vllm", "namespace": "models", "server": at.url, "resync": "60s", **fields}
    return DiscoverConfig.model_validate({"inference_pool": section})


def test_a_name_alone_is_a_section() -> None:
    made = DiscoverConfig.model_validate({"inference_pool": "vllm"})
    assert made.inference_pool is not None
    assert (made.inference_pool.name, made.inference_pool.namespace) == ("vllm", None)


async def test_ready_pods_are_endpoints_at_each_target_port() -> None:
    async with cluster() as at:
        await at.pools.put(pool(ports=(8000, 8001)))
        await at.pools.put(pool("other", ports=(1,)))
        await at.pods.put(pod("a", "10.0.0.1", zone="eu-1a"))
        await at.pods.put(pod("b", "10.0.0.2", ready=False))
        await at.pods.put(pod("c", "10.0.0.3", app="else"))
        async with following(config(at)) as endpoints:
            await until(lambda: urls(endpoints) == [ONE, "http://10.0.0.1:8001"])
            assert {target.zone for target in endpoints.targets} == {"eu-1a"}
            await until(lambda: at.pods.watches and at.pools.watches)
            await at.pods.put(pod("b", "10.0.0.2"))
            await until(lambda: len(endpoints.targets) == 4)
            await at.pods.put(pod("a", "10.0.0.1", ending=True))
            await until(lambda: urls(endpoints) == [TWO, "http://10.0.0.2:8001"])
            await at.pods.put(pod("b", "10.0.0.2", ready=False))
            await until(lambda: urls(endpoints) == [ONE, "http://10.0.0.1:8001"])  # it serves while it terminates
            await at.pods.delete("a")
            await until(lambda: endpoints.error)
            assert (at.pods.lists, at.pods.watches) == (1, 1)
            assert set(at.pods.selectors) == {"app=vllm"}


async def test_a_changed_pool_takes_effect() -> None:
    async with cluster() as at:
        await at.pools.put(pool())
        await at.pods.put(pod("a", "10.0.0.1"))
        await at.pods.put(pod("b", "10.0.0.2", app="next"))
        async with following(config(at)) as endpoints:
            await until(lambda: urls(endpoints) == [ONE])
            await at.pools.put(pool(ports=(9000,)))
            await until(lambda: urls(endpoints) == ["http://10.0.0.1:9000"])
            await at.pools.put(pool(app="next"))
            await until(lambda: urls(endpoints) == [TWO])
            await at.pods.put(pod("a", "10.0.0.9"))  # a pod of the former selector
            await at.pods.put(pod("c", "10.0.0.3", app="next"))
            await until(lambda: urls(endpoints) == [TWO, "http://10.0.0.3:8000"])


async def test_an_alpha_pool_has_one_port_and_a_flat_selector() -> None:
    async with cluster() as at:
        at.pools.absent, at.alpha.absent = True, False
        spec = {"selector": {"app": "vllm"}, "targetPortNumber": 8000, "extensionRef": {"name": "picker"}}
        await at.alpha.put({"metadata": {"name": "vllm"}, "spec": spec})
        await at.pods.put(pod("a", "10.0.0.1"))
        async with following(config(at)) as endpoints:
            await until(lambda: urls(endpoints) == [ONE])


async def test_a_pool_that_does_not_exist_yet_is_named_and_used_when_it_exists() -> None:
    async with cluster() as at:
        await at.pods.put(pod("a", "10.0.0.1"))
        async with following(config(at)) as endpoints:
            await until(
                lambda: endpoints.error == "the Kubernetes API has no InferencePool vllm in the namespace models"
            )
            await at.pools.put(pool())
            await until(lambda: urls(endpoints) == [ONE])
            assert endpoints.error == ""


@pytest.mark.parametrize("resource", ["pools", "pods"])
@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_version_that_is_gone_is_listed_anew(resource: str, how: str) -> None:
    async with cluster() as at:
        await at.pools.put(pool())
        await at.pods.put(pod("a", "10.0.0.1"))
        faulty = getattr(at, resource)
        async with following(config(at)) as endpoints:
            await until(lambda: urls(endpoints) == [ONE] and at.pods.watches and at.pools.watches)
            lists = faulty.lists
            if how == "event":
                await faulty.gone()
            else:
                faulty.oldest = 10_000
                faulty.cut()
            await until(lambda: faulty.lists > lists)
            faulty.oldest = 0
            await at.pods.put(pod("a", "10.0.0.2"))
            await until(lambda: urls(endpoints) == [TWO])
            assert endpoints.error == ""


@pytest.mark.parametrize("resource", ["pools", "pods"])
@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_failing_api_server_leaves_the_last_endpoints(resource: str, status: int) -> None:
    async with cluster() as at:
        await at.pools.put(pool())
        await at.pods.put(pod("a", "10.0.0.1"))
        async with following(config(at)) as endpoints:
            await until(lambda: urls(endpoints) == [ONE] and at.pods.watches and at.pools.watches)
            faulty = getattr(at, resource)
            faulty.status, faulty.headers = status, {"retry-after": "1"}
            for each in (at.pools, at.pods):
                each.cut()
            await until(lambda: str(status) in endpoints.error)
            assert ("role" in endpoints.error) is (status in (401, 403))
            assert urls(endpoints) == [ONE]
            faulty.status = 200
            await at.pods.put(pod("a", "10.0.0.2"))
            await until(lambda: urls(endpoints) == [TWO])


async def test_half_a_list_changes_nothing() -> None:
    async with cluster() as at:
        await at.pools.put(pool())
        for number in range(1, 4):
            await at.pods.put(pod(f"p{number}", f"10.0.0.{number}"))
        at.pods.page = 2
        async with following(config(at, resync="2s")) as endpoints:
            await until(lambda: len(endpoints.targets) == 3)
            for number in range(4, 7):
                await at.pods.put(pod(f"p{number}", f"10.0.0.{number}"), silently=True)
            answer, lists = at.pods._list, at.pods.lists

            def broken(request: Any) -> Any:
                if "continue" in request.query:
                    request.transport.abort()
                return answer(request)

            at.pods._list = broken  # type: ignore[method-assign]
            await until(lambda: endpoints.error and at.pods.lists > lists)
            assert len(endpoints.targets) == 3
            at.pods._list = answer  # type: ignore[method-assign]
            await until(lambda: len(endpoints.targets) == 6)
            assert endpoints.error == ""


async def test_the_token_is_read_again_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with cluster() as at:
        await at.pools.put(pool())
        await at.pods.put(pod("a", "10.0.0.1"))
        async with following(config(at, token_file=str(token), resync="1s")):
            await until(lambda: at.pods.watches)
            token.write_text("second\n")
            await until(lambda: "Bearer second" in at.pods.tokens and "Bearer second" in at.pools.tokens)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"selector": {"matchLabels": {}}, "targetPorts": [{"number": 1}]},
        {"selector": {"matchLabels": {"a": "b,c=d"}}, "targetPorts": [{"number": 1}]},
        {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": []},
        {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 0}]},
        {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": n} for n in range(1, 10)]},
    ],
)
def test_a_pool_that_selects_everything_or_nothing_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(DiscoveryError, match="InferencePool vllm"):
        spec_of({"metadata": {"name": "vllm"}, "spec": spec})


PODS = st.lists(
    st.builds(
        pod,
        st.just("a"),
        st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", ""]),
        ready=st.booleans(),
        ending=st.booleans(),
        zone=st.sampled_from(["", "eu-1a"]),
    ),
    max_size=6,
)


@given(PODS, st.lists(st.integers(1, 65535), min_size=1, max_size=8, unique=True))
def test_targets_are_the_serving_pods_times_the_ports(items: list[dict[str, Any]], ports: list[int]) -> None:
    pods = [pod_of(item) for item in items]
    targets = pool_targets(PoolSpec("a=b", tuple(ports)), pods, "http")
    serving = [each for each in pods if each.ready and each.address]
    lasting = [each for each in serving if not each.terminating]
    assert len(targets) == len(lasting or serving) * len(ports)
    assert all(target.url.rpartition(":")[2] in map(str, ports) for target in targets)

"""EndpointSlices, listed and watched. The failures of an API server are those of `test_inference_pool`."""

from pathlib import Path
from typing import Any

import pytest

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery import cluster_api
from gateway.traffic.discovery.cluster_api import ClusterApi
from gateway.traffic.discovery.list_watch import ListWatch
from gateway.traffic.discovery.target import DiscoveryError
from tests.gateway.traffic.discovery.following import following, urls
from tests.support.kubernetes import ApiServer, api_server, endpoint, slice_of
from tests.support.waiting import until

ONE, TWO, THREE = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.3:8000"


def config(api: ApiServer, **fields: Any) -> DiscoverConfig:
    section = {"service": "vllm", "namespace": "models", "server": api.url, "resync": "60s", **fields}
    return DiscoverConfig.model_validate({"kubernetes": section})


async def test_slices_are_listed_in_pages_and_then_watched() -> None:
    async with api_server() as api:
        api.page = 1
        await api.put(slice_of("a", endpoint("10.0.0.1")))
        await api.put(slice_of("b", endpoint("10.0.0.2")))
        async with following(config(api)) as endpoints:
            await until(lambda: endpoints.targets)
            assert (urls(endpoints), api.lists) == ([ONE, TWO], 2)
            await until(lambda: api.watches)
            await api.put(slice_of("c", endpoint("10.0.0.3", zone="eu-1a")))
            await until(lambda: len(endpoints.targets) == 3)
            assert endpoints.targets[2].zone == "eu-1a"
            await api.delete("a")
            await api.put(slice_of("b", endpoint("10.0.0.2", ready=False)))
            await until(lambda: urls(endpoints) == [THREE])
            assert (api.lists, api.watches) == (2, 1)
            assert set(api.selectors) == {"kubernetes.io/service-name=vllm"}
            assert endpoints.targets[0].server_name == "vllm.models.svc"


async def test_a_removal_that_was_missed_counts_with_the_next_list() -> None:
    async with api_server() as api:
        await api.put(slice_of("a", endpoint("10.0.0.1")))
        await api.put(slice_of("b", endpoint("10.0.0.2")))
        async with following(config(api, resync="2s")) as endpoints:
            await until(lambda: len(endpoints.targets) == 2)
            await api.delete("a", silently=True)
            await until(lambda: urls(endpoints) == [TWO])
            assert api.lists >= 2


async def test_an_ended_watch_continues_from_the_last_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_server() as api:
        await api.put(slice_of("a", endpoint("10.0.0.1")))
        watch = ListWatch._watch

        async def short(self: Any, http: Any, seconds: float, report: Any) -> None:
            await watch(self, http, min(seconds, 1.0), report)

        monkeypatch.setattr(ListWatch, "_watch", short)
        async with following(config(api)) as endpoints:
            await until(lambda: api.watches == 1)
            await api.bookmark()
            await until(lambda: api.watches == 2)
            assert api.versions == ["11", "12"]
            await api.put(slice_of("b", endpoint("10.0.0.2")))
            await until(lambda: urls(endpoints) == [ONE, TWO])
            assert api.lists == 1


async def test_an_invalid_slice_changes_nothing() -> None:
    async with api_server() as api:
        await api.put(slice_of("a", endpoint("10.0.0.1")))
        async with following(config(api)) as endpoints:
            await until(lambda: api.watches)
            await api._happen("ADDED", {"metadata": {"no": "name"}}, False)
            await until(lambda: endpoints.error)
            assert urls(endpoints) == [ONE]
            await until(lambda: not endpoints.error)


def test_outside_a_cluster_missing_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for section, missing in (
        ({"service": "vllm"}, "kubernetes.namespace"),
        ({"service": "vllm", "namespace": "models"}, "kubernetes.server"),
    ):
        with pytest.raises(DiscoveryError, match=missing):
            ClusterApi(DiscoverConfig.model_validate({"kubernetes": section}).kubernetes, "kubernetes")  # type: ignore[arg-type]


def test_inside_a_cluster_the_service_account_provides_the_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster_api, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "namespace").write_text("models")
    section = DiscoverConfig.model_validate({"kubernetes": {"service": "vllm"}}).kubernetes
    assert section is not None
    with pytest.raises(DiscoveryError, match=r"ca\.crt"):
        ClusterApi(section, "kubernetes")

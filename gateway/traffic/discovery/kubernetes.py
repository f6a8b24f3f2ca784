"""Endpoints of a Kubernetes service: its EndpointSlices."""

from collections.abc import Mapping
from typing import Any

from config.schema.config import KubernetesConfig
from gateway.traffic.discovery.cluster_api import ClusterApi
from gateway.traffic.discovery.list_watch import ListWatch
from gateway.traffic.discovery.slices import targets
from gateway.traffic.discovery.target import Report


class EndpointSlices:
    """Follows the slices of one service."""

    def __init__(self, config: KubernetesConfig, scheme: str) -> None:
        self._config = config
        self._scheme = scheme
        self._api = ClusterApi(config, "kubernetes")

    async def follow(self, report: Report) -> None:
        config, api = self._config, self._api
        name = f"{config.service}.{api.namespace}.svc"
        path = f"/apis/discovery.k8s.io/v1/namespaces/{api.namespace}/endpointslices"
        selector = {"labelSelector": f"kubernetes.io/service-name={config.service}"}
        slices = ListWatch(api, path, selector, _whole, resync=config.resync)
        async with api.session() as http:
            await slices.follow(http, lambda: report(targets(slices.items.values(), self._scheme, config.port, name)))


def _whole(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return item

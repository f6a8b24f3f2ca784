"""Endpoints of an InferencePool: the pool and its pods, listed and watched."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from config.schema.discovery import InferencePoolConfig
from gateway.traffic.discovery.cluster_api import ClusterApi, NoSuchResource
from gateway.traffic.discovery.list_watch import ListWatch
from gateway.traffic.discovery.pool_pods import Pod, PoolSpec, pod_of, pool_targets, spec_of
from gateway.traffic.discovery.target import DiscoveryError, Report

GROUPS = (
    "inference.networking.k8s.io/v1",
    "inference.networking.x-k8s.io/v1alpha2",
    "inference.networking.x-k8s.io/v1alpha1",
)
"""The versions of the resource, newest first."""
PODS_OF_A_PAGE = 100


class PoolPods:
    """Follows a pool and the pods of its selector, which may change."""

    def __init__(self, config: InferencePoolConfig, scheme: str) -> None:
        self._config = config
        self._scheme = scheme
        self._api = ClusterApi(config, "inference_pool")

    async def follow(self, report: Report) -> None:
        async with self._api.session() as http:
            for group in GROUPS:
                with suppress(NoSuchResource):
                    await _Following(self._api, http, self._config, group, self._scheme, report).run()
        name = f"InferencePool {self._config.name} in the namespace {self._api.namespace}"
        report(())
        raise DiscoveryError(f"the Kubernetes API has no {name}")


class _Following:
    """One version of the resource. `run` raises `NoSuchResource` when the pool does not exist in it."""

    def __init__(
        self,
        api: ClusterApi,
        http: aiohttp.ClientSession,
        config: InferencePoolConfig,
        group: str,
        scheme: str,
        report: Report,
    ) -> None:
        self._api = api
        self._http = http
        self._config = config
        self._scheme = scheme
        self._report = report
        self._changed = asyncio.Event()
        self._listed = False
        path = f"/apis/{group}/namespaces/{api.namespace}/inferencepools"
        selector = {"fieldSelector": f"metadata.name={config.name}"}
        self._pools: ListWatch[Mapping[str, Any]] = ListWatch(api, path, selector, dict, resync=config.resync)
        self._pods: ListWatch[Pod] | None = None
        self._has_pods = False
        self._spec: PoolSpec | None = None

    async def run(self) -> None:
        pools = asyncio.create_task(self._pools.follow(self._http, self._on_pools))
        pods: asyncio.Task[None] | None = None
        try:
            while True:
                changed = asyncio.create_task(self._changed.wait())
                tasks = [task for task in (changed, pools, pods) if task is not None]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                for task in (pools, pods):
                    if task is not None and task.done():
                        task.result()  # raises its error
                self._changed.clear()
                if self._listed and self._apply():
                    if pods is not None:
                        await _ended(pods)
                    assert self._pods is not None
                    pods = asyncio.create_task(self._pods.follow(self._http, self._on_pods))
        finally:
            for task in (pools, pods):
                if task is not None:
                    await _ended(task)

    def _on_pools(self) -> None:
        self._listed = True
        self._changed.set()

    def _on_pods(self) -> None:
        self._has_pods = True
        self._changed.set()

    def _apply(self) -> bool:
        """Report the current endpoints. Returns whether other pods must be followed. Raises `DiscoveryError`."""
        item = self._pools.items.get(self._config.name)
        if item is None:
            raise NoSuchResource("the pool does not exist")
        before, self._spec = self._spec, spec_of(item)
        if before is None or before.selector != self._spec.selector:
            path = f"/api/v1/namespaces/{self._api.namespace}/pods"
            selector = {"labelSelector": self._spec.selector}
            resync = self._config.resync
            self._pods = ListWatch(self._api, path, selector, pod_of, resync=resync, page=PODS_OF_A_PAGE)
            self._has_pods = False
            return True
        if self._pods is not None and self._has_pods:
            self._report(pool_targets(self._spec, self._pods.items.values(), self._scheme))
        return False


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end. Its error does not count any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()

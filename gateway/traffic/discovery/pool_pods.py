"""An InferencePool of Kubernetes' Gateway API Inference Extension, and its pods, as targets. No I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gateway.traffic.discovery.target import DiscoveredEndpoint, DiscoveryError, url

MOST_PORTS = 8
ZONE = "topology.kubernetes.io/zone"
_LABEL = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9._-]{1,63}=[A-Za-z0-9._-]{0,63}", re.ASCII)


class PoolSpec(NamedTuple):
    """The pods of a pool, as a label selector, and the ports of each. Every port is an endpoint of its own."""

    selector: str
    ports: tuple[int, ...]


class Pod(NamedTuple):
    """The part of a pod that a target needs."""

    address: str
    zone: str | None
    ready: bool
    terminating: bool


def spec_of(item: Mapping[str, Any]) -> PoolSpec:
    """The specification of an `InferencePool`: of `v1`, or of the alpha versions. Raises `DiscoveryError`."""
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    selector = spec.get("selector") or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector else selector
    pairs = sorted(f"{key}={value}" for key, value in (labels or {}).items())
    if not pairs or not all(map(_LABEL.fullmatch, pairs)):
        raise DiscoveryError(f"the InferencePool {name} has no valid selector.matchLabels")
    if "targetPortNumber" in spec:
        numbers = [spec["targetPortNumber"]]
    else:
        numbers = [port.get("number") for port in spec.get("targetPorts") or ()]
    ports = tuple(dict.fromkeys(number for number in numbers if type(number) is int and 0 < number < 65536))
    if not ports or len(ports) != len(numbers) or len(ports) > MOST_PORTS:
        raise DiscoveryError(f"the InferencePool {name} has no valid targetPorts")
    return PoolSpec(",".join(pairs), ports)


def pod_of(item: Mapping[str, Any]) -> Pod:
    """The part of a pod that a target needs."""
    metadata, status = item["metadata"], item.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    zone = (metadata.get("labels") or {}).get(ZONE)
    zone = zone if isinstance(zone, str) and zone else None
    return Pod(str(status.get("podIP") or ""), zone, ready, bool(metadata.get("deletionTimestamp")))


def pool_targets(spec: PoolSpec, pods: Iterable[Pod], scheme: str) -> list[DiscoveredEndpoint]:
    """The endpoints of the ready pods or, when none is ready, of those that serve while they terminate."""
    serving = [pod for pod in pods if pod.address and pod.ready]
    used = [pod for pod in serving if not pod.terminating] or serving
    return [DiscoveredEndpoint(url(scheme, pod.address, port), 1.0, pod.zone) for pod in used for port in spec.ports]

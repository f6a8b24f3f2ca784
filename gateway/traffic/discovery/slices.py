"""EndpointSlices of one service (discovery.k8s.io/v1) as targets. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.traffic.discovery.target import DiscoveredEndpoint, url

Slice = Mapping[str, Any]


def targets(slices: Iterable[Slice], scheme: str, port: str | None, server_name: str) -> list[DiscoveredEndpoint]:
    """The endpoints that are ready or, when none is, those that serve while they terminate.

    This is kube-proxy's rule: a service whose pods all terminate uses them until they have ended. A pod with an address
    of each family is in two slices and counts once, by IPv4.
    """
    by_pod: dict[str, tuple[bool, DiscoveredEndpoint]] = {}
    for one in sorted(slices, key=lambda one: str(one.get("addressType"))):  # IPv4 comes before IPv6
        if (number := _port(one, port)) is None:
            continue
        for endpoint in _entries(one.get("endpoints")):
            ready = _usable(endpoint)
            address = next(iter(endpoint.get("addresses") or ()), None)
            if ready is None or not isinstance(address, str):
                continue
            pod = (endpoint.get("targetRef") or {}).get("uid") or address
            zone = endpoint.get("zone")
            zone = zone if isinstance(zone, str) and zone else None
            target = DiscoveredEndpoint(url(scheme, address, number), 1.0, zone, server_name)
            by_pod.setdefault(str(pod), (ready, target))
    any_ready = any(ready for ready, _ in by_pod.values())
    return [target for ready, target in by_pod.values() if ready or not any_ready]


def _usable(endpoint: Mapping[str, Any]) -> bool | None:
    """True when ready, False when it serves although it terminates, None for neither.

    A condition that is absent counts as met, except `terminating`.
    """
    conditions = endpoint.get("conditions") or {}
    terminating = conditions.get("terminating") is True
    if conditions.get("ready") is not False and not terminating:
        return True
    return False if terminating and conditions.get("serving") is not False else None


def _port(one: Slice, named: str | None) -> int | None:
    """The number of the configured port, by name or number; of the only port, when none is configured."""
    ports = [port for port in _entries(one.get("ports")) if type(port.get("port")) is int]
    for port in ports:
        if named in (port.get("name"), str(port["port"])) or (named is None and len(ports) == 1):
            return int(port["port"])
    return None


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())

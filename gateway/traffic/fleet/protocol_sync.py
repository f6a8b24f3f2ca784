"""Checks that all endpoints of a pool speak the same protocol, if the pool detects its protocol."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from adapters.detection.auto import AutoAdapter
from gateway.traffic.fleet.member import PoolMember

log = logging.getLogger(__name__)


def detected(member: PoolMember) -> dict[str, Any] | None:
    """The detected protocol of an endpoint; None before detection, and for a pool with a configured protocol."""
    adapter = member.endpoint.adapter
    if not isinstance(adapter, AutoAdapter) or adapter.detection is None or adapter.protocol is None:
        return None
    detection, protocol = adapter.detection, adapter.protocol
    written = protocol.model_dump(mode="json", exclude_defaults=True) | {"name": protocol.name}
    return {"system": detection.system, "version": detection.version, "protocol": written}


def disagree(members: Iterable[PoolMember]) -> bool:
    """Whether two members speak different protocols."""
    protocols = [detection["protocol"] for member in members if (detection := detected(member)) is not None]
    return any(one != protocols[0] for one in protocols)


def watch(pool: str, member: PoolMember, members: Callable[[], list[PoolMember]]) -> None:
    """Log the detected protocol of an endpoint, and a difference among the pool's endpoints."""
    adapter = member.endpoint.adapter
    if not isinstance(adapter, AutoAdapter):
        return

    def report() -> None:
        assert adapter.detection is not None
        assert adapter.protocol is not None
        detection = adapter.detection
        log.info(
            "endpoint %s is %s %s: %s", member.endpoint.id, detection.system, detection.version, adapter.protocol.name
        )
        if disagree(members()):
            log.warning("pool %s: its endpoints speak different protocols: GET /admin/pools lists them", pool)

    adapter.on_detection = report

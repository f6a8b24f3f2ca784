"""Nodes of their own for the replicas of a group. A part of the driver: it uses the standard library only.

Each node has one unit of every resource whose name begins with Ray's prefix of implicit resources. A replica that
requires the unit of its group is alone on its node among such replicas, wherever and whenever Ray places it. Ray Serve
builds `max_replicas_per_node` on the same resource. A placement group has a fixed number of bundles and a lifetime of
its own: it can neither follow the number of replicas nor end with them.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

OWN_NODE_SECONDS = 30.0
"""The longest time that a replica of `spread` waits for a node of its own. It includes the start of its process."""
PREFIX = "node:__internal_implicit_resource_headrace:"


class Group:
    """The replicas of one pool with the same settings."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """The node of each replica that is placed."""
        self._waiting: dict[str, float] = {}
        """The time since which each replica waits for a node of its own, in the order of their starts."""

    def requirement(self, spec: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """The amount of the group's resource that a new replica requires: 1 for a node of its own, else nothing."""
        if spec["strategy"] == "pack":
            return {}
        if spec["strategy"] == "spread":
            self._waiting[spec["name"]] = time.monotonic()
            if self.must_share(spec, nodes):
                self.leave(spec["name"])
                return {}
        return {PREFIX + spec["group"]: 1.0}

    def must_share(self, spec: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a replica that waits for a node of its own is placed on a shared node instead: no other node is large
        enough, or it has waited for long."""
        if (since := self._waiting.get(spec["name"])) is None:
            return False
        used = set(self._nodes.values())
        free = [node for node in nodes if node["NodeID"] not in used and fits(spec["resources"], node["Resources"])]
        return len(free) <= list(self._waiting).index(spec["name"]) or time.monotonic() - since > OWN_NODE_SECONDS

    def placed(self, name: str, node: str) -> None:
        """Record the node of a replica."""
        self._waiting.pop(name, None)
        self._nodes[name] = node

    def leave(self, name: str) -> None:
        """Remove a replica that no node runs."""
        self._waiting.pop(name, None)
        self._nodes.pop(name, None)


def fits(required: Mapping[str, float], node: Mapping[str, float]) -> bool:
    """Whether a node without other work has the resources."""
    return all(node.get(name, 0) >= amount for name, amount in required.items())

"""Finds valid fields whose combination is unsafe or has no effect.

The author of a field expects an effect, so a field without effect is rejected.
"""

from collections.abc import Iterator
from itertools import combinations

from config.checks import (
    bus,
    comparisons,
    conflicts,
    credentials,
    guards,
    metering,
    pipelines,
    pooling,
    references,
    routing,
    runtimes,
    shadows,
)
from config.document import Document, Node
from config.problem import Problem
from config.schema.units import HostPort

_NO_SECTION = "has no effect: the file has no section `batches`"


def _batches(doc: Document, root: Node) -> Iterator[Problem]:
    """Report settings of batches in a file that runs none."""
    if "batches" in root:
        return
    for pool in root["pools"]:
        if "provider_batches" in pool:
            yield doc.problem_with_key(pool["provider_batches"].place, _NO_SECTION)
    for tenant in root["tenants"]:
        if "batches" in tenant:
            yield doc.problem_with_key(tenant["batches"].place, _NO_SECTION)


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid combination."""
    yield from _listeners(doc, root)
    yield from credentials.check(doc, root)
    yield from pooling.check(doc, root)
    yield from runtimes.check_devices(doc, root)
    yield from runtimes.check_adapters(doc, root)
    yield from runtimes.check_deployments(doc, root)
    yield from metering.check(doc, root)
    yield from routing.check_attempts(doc, root)
    yield from pooling.check_queues(doc, root)
    yield from _batches(doc, root)
    yield from routing.check(doc, root)
    yield from pipelines.check(doc, root)
    yield from comparisons.check(doc, root)
    yield from comparisons.check_experiments(doc, root)
    yield from shadows.check(doc, root)
    yield from bus.check(doc, root)
    yield from guards.check(doc, root)
    yield from references.check_webhooks(doc, root)
    yield from conflicts.check(doc, root)


def _listeners(doc: Document, root: Node) -> Iterator[Problem]:
    listen = root["listen"]
    names = ("http", "admin", "grpc", "endpoint_picker", "keda")
    addresses = {name: listen[name].read(HostPort) for name in names}
    for (name, other), (later, address) in combinations(addresses.items(), 2):
        if other and address and address.overlaps(other):
            yield doc.problem(listen[later].place, f"takes the port of listen.{name} ({other}): give it another")
    if addresses["endpoint_picker"] is None and "endpoint_picker_alternatives" in listen:
        place = listen["endpoint_picker_alternatives"].place
        yield doc.problem_with_key(place, "has no effect: listen.endpoint_picker is absent")
    exposed = [str(address) for address in addresses.values() if address and not address.is_loopback]
    if root["auth"]["demo_key"].read(bool) and exposed:
        message = f"a demo key is for loopback only, and {' and '.join(exposed)} can be reached from elsewhere"
        yield doc.problem(root["auth"]["demo_key"].place, message)

"""The leases of requests that a proxy carries to their endpoints, and the alternatives that the proxy may try."""

from collections.abc import Iterable, Sequence

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import TransportError
from adapters.http1.relay import Relay
from adapters.requests import ModelRequest
from gateway.traffic.endpoint import Endpoint, subject_of


def alternatives(picked: Endpoint, ready: Iterable[Endpoint], most: int) -> list[Endpoint]:
    """The least loaded of the other endpoints, for a proxy that cannot reach the picked one."""
    others = [endpoint for endpoint in ready if endpoint is not picked]
    return sorted(others, key=lambda endpoint: (endpoint.in_flight + 1) / endpoint.weight)[:most]


async def carried(
    relay: Relay, endpoint: Endpoint, others: Sequence[Endpoint], request: ModelRequest, call: Call
) -> Answer:
    """The answer through the proxy. The adapter of the picked endpoint encodes the request for all of them."""
    with relay.carrying([endpoint.address, *(other.address for other in others)]):
        return await endpoint.adapter.call(request, call)


def served(
    relay: Relay, picked: Endpoint, others: Sequence[Endpoint], request: ModelRequest, call: Call, now: float
) -> Endpoint:
    """The endpoint whose lease the request has: the one that the proxy reports.

    If that is an alternative, the lease of the picked endpoint ends as a failure: the proxy could not reach it.
    """
    if not relay.served:
        return picked
    endpoint = next((other for other in others if relay.has_served(other.address)), picked)
    if endpoint is not picked:
        subject = subject_of(request, call)
        picked.failed_to_begin(TransportError("The proxy could not reach the endpoint."), 0.0, now, subject)
        endpoint.begin(now, subject)
        call.trace.attempts.append(endpoint.id)
    return endpoint

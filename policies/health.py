"""Slow start, and the panic threshold below which health is ignored."""

COLDEST = 0.1
"""Share of its weight that an endpoint starts with: enough to warm it, too little to overload it."""


def ramp(age: float, window: float) -> float:
    """Share of its weight for an endpoint that joined or recovered `age` seconds ago, with a slow start of `window`
    seconds.

    A straight line from 0.1 to 1. (Envoy, "Slow start mode", aggression 1.)
    """
    return 1.0 if age >= window else max(COLDEST, age / window)


def panics(healthy: int, endpoints: int, threshold: float) -> bool:
    """Whether fewer than `threshold` (0 … 1) of the endpoints are healthy, so that health is ignored.

    The full traffic would overload the few healthy endpoints, and checks that fail for most endpoints at once may
    be wrong themselves. A threshold of 0 never panics. (Envoy, "Panic threshold".)
    """
    return healthy < threshold * endpoints

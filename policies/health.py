"""How far health decides who gets traffic."""

COLDEST = 0.1
"""Share of its weight that an endpoint starts with: enough to warm it, too little to bury it."""


def ramp(age: float, window: float) -> float:
    """Share of its weight for an endpoint that came (back) `age` seconds ago, warming for `window` seconds.

    A straight line from 0.1 to 1. (Envoy, "Slow start mode", aggression 1.)
    """
    return 1.0 if age >= window else max(COLDEST, age / window)


def panics(healthy: int, endpoints: int, threshold: float) -> bool:
    """Whether fewer than `threshold` (0 … 1) of the endpoints are healthy, so that health is to be ignored.

    The few that are left would only be overrun by everyone's traffic, and checks that fail for most endpoints
    at once say more about the checks. A threshold of 0 never panics. (Envoy, "Panic threshold".)
    """
    return healthy < threshold * endpoints

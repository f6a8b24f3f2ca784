"""What a screen shows of one replica, and of all replicas together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gateway.features.live.rates import rates_of, rates_of_all
from gateway.telemetry.figures import FigureSet
from gateway.telemetry.recent import WINDOW

MOST_ENDPOINTS = 500
"""Endpoints in a frame. Beyond them, healthy ones are left out first."""
MOST_MODELS = 5
"""Models at rest of an endpoint in a frame."""
_FIELDS = ("endpoint", "address", "health", "probe_error", "breaker", "in_flight", "weight", "zone", "drained", "pid")
_WORST = ("unhealthy", "unknown", "healthy")
_MOST_OPEN = ("open", "half_open", "closed")


class ReplicaView(NamedTuple):
    """One replica as a screen sees it."""

    replica: str
    name: str
    state: dict[str, Any]
    """As of `summary_of`."""
    silent: float = 0.0
    """Seconds since it was heard of, if it should have been."""

    @property
    def figures(self) -> FigureSet:
        """What ended in its last seconds."""
        return FigureSet.read(self.state.get("recent", {}))


def summary_of(state: dict[str, Any], most: int = MOST_ENDPOINTS) -> dict[str, Any]:
    """The pools of a state with at most so many endpoints, its workers, and its sums of the last seconds."""
    shown: dict[str, list[dict[str, Any]]] = {}
    by_pool: dict[str, list[dict[str, Any]]] = {}
    endpoints = state.get("endpoints", [])
    for endpoint in endpoints:
        by_pool.setdefault(endpoint["pool"], []).append(endpoint)
    for endpoint in sorted(endpoints, key=_is_fine)[:most]:
        shown.setdefault(endpoint["pool"], []).append(_described(endpoint))
    queues = {queue["pool"]: queue for queue in state.get("queues", ())}
    replicas = {scale["pool"]: scale for scale in state.get("replicas", ())}
    for name in replicas:
        by_pool.setdefault(name, [])  # a pool at zero has no endpoint
    pools = [
        {
            "pool": name,
            "endpoints": shown.get(name, []),
            "size": len(members),
            "in_flight": sum(member["in_flight"] for member in members),
            "queue": _queue(queues.get(name)),
            "replicas": _replicas(replicas.get(name)),
        }
        for name, members in by_pool.items()
    ]
    workers = [{name: worker.get(name) for name in ("slot", "pid", "state")} for worker in state.get("workers", ())]
    accepting, in_flight = state.get("accepting", False), state.get("in_flight", 0)
    made = {"accepting": accepting, "in_flight": in_flight, "pools": pools, "workers": workers}
    return {**made, "recent": state.get("recent", {})}


def frame_of(views: Sequence[ReplicaView], chosen: str | None, now: float) -> dict[str, Any]:
    """What the screen shows of the chosen replica, or of all of them together. The first view is this replica's own."""
    figures = [view.figures for view in views]
    shown = [each for each in zip(views, figures, strict=True) if chosen in (None, each[0].replica)]
    sums = FigureSet()
    for view, each in shown:
        if not view.silent:
            sums.add(each)
    states = [view.state for view, _ in shown if not view.silent]
    return {
        "at": now,
        "accepting": any(state["accepting"] for state in states),
        "in_flight": sum(state["in_flight"] for state in states),
        "pools": states[0]["pools"] if len(states) == 1 else _merged_pools(states),
        "workers": shown[0][0].state["workers"] if len(shown) == 1 else [],
        "rates": rates_of_all(sums, WINDOW),
        "own": bool(shown) and shown[-1][0] is views[0],
        "replicas": [_replica(view, each) for view, each in zip(views, figures, strict=True)],
    }


def _replica(view: ReplicaView, figures: FigureSet) -> dict[str, Any]:
    endpoints = [endpoint for pool in view.state["pools"] for endpoint in pool["endpoints"]]
    return {
        "replica": view.replica,
        "name": view.name,
        "silent": round(view.silent, 1),
        "accepting": view.state["accepting"],
        "in_flight": view.state["in_flight"],
        "unhealthy": sum(endpoint["health"] == "unhealthy" for endpoint in endpoints),
        **rates_of(figures.all, WINDOW),
    }


def _merged_pools(states: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pool of several replicas, which see the same endpoints."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for state in states:
        for pool in state["pools"]:
            by_name.setdefault(pool["pool"], []).append(pool)
    return [_merged_pool(name, pools) for name, pools in by_name.items()]


def _merged_pool(name: str, pools: list[dict[str, Any]]) -> dict[str, Any]:
    by_address: dict[str, list[dict[str, Any]]] = {}
    for pool in pools:
        for endpoint in pool["endpoints"]:
            by_address.setdefault(endpoint["endpoint"], []).append(endpoint)
    queues = [pool["queue"] for pool in pools if pool["queue"] is not None]
    rates = [queue["served_per_second"] for queue in queues if queue["served_per_second"] is not None]
    waiting = sum((Counter(queue["by_priority"]) for queue in queues), Counter[str]())
    queue = {
        "waiting": waiting.total(),
        "by_priority": dict(waiting),
        "served_per_second": sum(rates) if rates else None,
    }
    endpoints = [_merged_endpoint(same) for same in by_address.values()]
    return {
        "pool": name,
        "endpoints": sorted(endpoints, key=_is_fine)[:MOST_ENDPOINTS],
        "size": max(pool["size"] for pool in pools),
        "in_flight": sum(pool["in_flight"] for pool in pools),
        "queue": queue if queues else None,
        "replicas": next((pool["replicas"] for pool in pools if pool["replicas"] is not None), None),
    }


def _merged_endpoint(same: list[dict[str, Any]]) -> dict[str, Any]:
    """An endpoint as the replica sees it that has the most trouble with it, and how many replicas see it so."""
    standings = [_standing(each) for each in same]
    worst = min(standings)
    made = {**same[standings.index(worst)], "in_flight": sum(each["in_flight"] for each in same)}
    alike = standings.count(worst)
    return made if alike == len(same) else {**made, "seen_by": alike, "of": len(same)}


def _standing(endpoint: dict[str, Any]) -> tuple[int, int, bool]:
    """Smaller for more trouble."""
    return _rank(_WORST, endpoint["health"]), _rank(_MOST_OPEN, endpoint["breaker"]), not endpoint.get("drained")


def _rank(order: Sequence[str], value: str) -> int:
    return order.index(value) if value in order else len(order)


def _is_fine(endpoint: dict[str, Any]) -> bool:
    return endpoint["health"] != "unhealthy" and endpoint["breaker"] == "closed" and not endpoint.get("drained")


def _described(endpoint: dict[str, Any]) -> dict[str, Any]:
    described = {name: endpoint[name] for name in _FIELDS if endpoint.get(name) is not None}
    return described | {"account": _account(models)} if (models := endpoint.get("models")) else described


def _account(models: dict[str, Any]) -> dict[str, Any]:
    """The longest pause of an account's models, the models at rest, and the smallest share that is left of a quota."""
    resting = sorted(name for name, model in models.items() if model["rest_seconds"])
    quotas = [quota for model in models.values() for quota in model["quotas"].values()]
    return {
        "rest_seconds": max(model["rest_seconds"] for model in models.values()),
        "resting": resting[:MOST_MODELS],
        "left": min((quota["left"] / quota["limit"] for quota in quotas), default=None),
    }


def _replicas(scale: dict[str, Any] | None) -> dict[str, Any] | None:
    names = ("replicas", "ready", "starting", "desired", "reason", "failure")
    return None if scale is None else {name: scale[name] for name in names}


def _queue(queue: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if queue is None else {name: queue[name] for name in ("waiting", "by_priority", "served_per_second")}

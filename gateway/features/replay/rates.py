"""The rate of each rollout's requests and of their failures, from recorded traffic."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from config.schema.config import Config
from config.schema.rollout import RolloutConfig
from gateway.features.recording.policy import RecordedPolicy
from gateway.features.replay.records import RecordedRequest
from policies.rollouts.counting import FAILED


class RolloutTraffic(NamedTuple):
    """The traffic of one rollout's route."""

    rollout: RolloutConfig
    requests: float
    """In 1/s: the rate of all requests, not only of the recorded ones."""
    failures: float
    """The share of requests that fail."""
    recorded: int
    is_bound: bool
    """Whether no recorded request failed: `failures` is then the share of one failure."""


def rollout_traffic(requests: Iterable[RecordedRequest], config: Config) -> Iterator[RolloutTraffic]:
    """The traffic of each rollout of the configuration that recorded requests reach."""
    policy = RecordedPolicy(config)
    places = {
        (model.name, index): route.rollout
        for model in config.models
        for index, route in enumerate(model.routes)
        if route.rollout is not None
    }
    counts, failed, weights = dict.fromkeys(places, 0), dict.fromkeys(places, 0), dict.fromkeys(places, 0.0)
    first, last = float("inf"), 0.0
    for entry, holder, frame, _ in requests:
        at = entry.arrival / 1e9
        first, last = min(first, at), max(last, at)
        decided = policy.decide(entry, policy.principal(holder))
        place = (decided.configured, decided.route)
        if place in places and entry.model:
            counts[place] += 1
            weights[place] += 1 / frame.share if frame.share else 0.0
            failed[place] += entry.error in FAILED and bool(entry.attempts)
    seconds = max(last - first, 1.0)
    for place, rollout in places.items():
        if counts[place]:
            share = max(failed[place], 1) / counts[place]
            yield RolloutTraffic(rollout, weights[place] / seconds, share, counts[place], not failed[place])

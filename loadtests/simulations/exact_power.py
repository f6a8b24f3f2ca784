"""The power of the event test at one share, exactly: a recursion over the events and the canary's events among them.

It draws nothing, and so checks the simulation, and the simulation checks it.
"""

import numpy as np

from loadtests.simulations.rollout_runs import Floats, Integers, log_mean, logs_of
from policies.sequential.event_ratio import RISES


def exact_power(
    share: float, truth: float, alpha: float, events: int, parts: tuple[float, ...] = (0.5, 0.9)
) -> tuple[int | None, ...]:
    """The events until these parts of all rollouts have alarmed; None beyond `events`."""
    q, shares = share * truth / (share * truth + 1 - share), np.array([share])
    alive: Floats = np.zeros(events + 1)
    alive[0] = 1.0
    own: Integers = np.arange(events + 1)
    alarmed: Floats = np.zeros(events + 1)
    for total in range(1, events + 1):
        alive[1:] = alive[1:] * (1 - q) + alive[:-1] * q
        alive[0] *= 1 - q
        totals = np.full((1, events + 1), total)
        certain = log_mean(logs_of(totals, own[None, :], shares, RISES, 1.0)) >= -np.log(alpha)
        certain[total + 1 :] = False
        alarmed[total] = alarmed[total - 1] + alive[certain].sum()
        alive[certain] = 0.0
    reached = (np.flatnonzero(alarmed >= part) for part in parts)
    return tuple(int(at[0]) if len(at) else None for at in reached)

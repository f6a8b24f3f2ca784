"""Simulated rollouts in numpy: many runs of many events, with the e-value after each event.

Given that an event happens, it is the canary's with a probability that depends on the share and the two rates only.
So a run draws, for each event, the step in which it happens and the arm to which it belongs.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from policies.sequential.event_ratio import FALLS, RISES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SCENARIOS = ("steady", "drift", "incident", "lagging workers")
BASES = (0.001, 0.01, 0.1)
STEPS = {"1%": (0.01,), "5%": (0.05,), "50%": (0.5,), "stepped": (0.01, 0.05, 0.25, 0.5)}
SHARES = tuple(STEPS)
SLOTS = 1000
"""Parts of a rollout with one base rate each."""
DRIFT = 10.0
INCIDENT = 50.0
"""How many times the base rate grows: over the whole rollout, and during an incident of both arms."""
LAG = 500
"""The second of two workers reports its events every so many."""
Z_95 = 1.6448536269514722


def highest_e(scenario: str, base: float, share: str, runs: int, peeks: int, seed: int) -> Floats:
    """Of each run of equal arms, the logarithm of the highest e-value at any event (an upper bound below ln 20)."""
    rng, shares = np.random.default_rng(seed), np.array(STEPS[share])
    highest = np.empty(runs)
    for run in range(runs):
        bounds = _bounds(rng, scenario, base, len(shares), peeks)
        step = np.repeat(np.arange(len(shares)), np.diff(bounds))
        canary = rng.random(len(step)) < shares[step]
        if scenario == "lagging workers":
            total, own = _lagging(step, canary, rng.random(len(step)) < 0.5, len(shares))
        else:
            total, own = _counts(bounds, canary)
        highest[run] = _highest(total, own, shares)
    return highest


def _bounds(rng: np.random.Generator, scenario: str, base: float, steps: int, peeks: int) -> Integers:
    """The number of events before each step, and of all. The steps last equally long; the rate of events decides."""
    rate = np.ones(SLOTS)
    if scenario == "drift":
        rate = DRIFT ** np.linspace(0, 1, SLOTS)
    elif scenario == "incident":
        begin = rng.integers(SLOTS)
        rate[begin : begin + SLOTS // 50] *= INCIDENT
    rate = np.minimum(base * rate, 1.0)
    requests = int(np.ceil(peeks / rate.sum()))
    events = np.cumsum(rng.binomial(requests, rate))
    ends = events[np.arange(1, steps + 1) * SLOTS // steps - 1]
    bounds: Integers = np.minimum(np.concatenate([[0], ends]), peeks)
    return bounds


def _counts(bounds: Integers, canary: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Of each step, the events and the canary's events, at each event of the canary.

    The e-value falls at every other event, so that it is highest at one of these.
    """
    at = np.flatnonzero(canary)
    before = np.searchsorted(at, bounds)
    total = np.clip(at + 1 - bounds[:-1, None], 0, np.diff(bounds)[:, None])
    own = np.clip(np.arange(1, len(at) + 1) - before[:-1, None], 0, np.diff(before)[:, None])
    return total, own


def _lagging(
    step: Integers, canary: NDArray[np.bool_], second: NDArray[np.bool_], steps: int
) -> tuple[Integers, Integers]:
    """The counts of two workers, the second of which reports every LAG events, when the canary's may rise."""
    at = np.union1d(np.flatnonzero(canary & ~second), np.arange(0, len(step), LAG))
    parts: list[Integers] = []
    for events in (np.ones_like(canary), canary):
        sums = []
        for k in range(steps):
            here = events & (step == k)
            late = np.concatenate([[0], np.cumsum(here & second)])
            sums.append(np.cumsum(here & ~second)[at] + late[at // LAG * LAG])
        parts.append(np.stack(sums))
    return parts[0], parts[1]


def _coefficients(shares: Floats, factors: tuple[float, ...], ratio: float) -> tuple[Floats, Floats]:
    """ln of the likelihood ratio of an event of the canary and of the other arm: by alternative and step."""
    q0 = shares * ratio / (shares * ratio + 1 - shares)
    rates = np.array(factors)[:, None] * ratio
    q = shares * rates / (shares * rates + 1 - shares)
    return np.log(q / q0), np.log((1 - q) / (1 - q0))


def logs_of(total: Integers, own: Integers, shares: Floats, factors: tuple[float, ...], ratio: float) -> Floats:
    """Of each alternative, the logarithm of its likelihood ratio at each event."""
    hits, misses = _coefficients(shares, factors, ratio)
    logs: Floats = (hits - misses) @ own.astype(float) + misses @ total.astype(float)
    return logs


def log_mean(logs: Floats) -> Floats:
    """The logarithm of the mean of exponentials, along the first axis."""
    top = logs.max(axis=0)
    mean: Floats = top + np.log(np.mean(np.exp(logs - top), axis=0))
    return mean


def _highest(total: Integers, own: Integers, shares: Floats) -> float:
    """The logarithm of the highest e-value; below an alarm at 5 %, an upper bound of it."""
    if own.shape[1] == 0:
        return 0.0
    logs = logs_of(total, own, shares, RISES, 1.0)
    top = float(logs.max())
    # The mean of the alternatives is between a seventh of the largest and the largest.
    return top if top < np.log(20) else float(log_mean(logs).max())


def first_alarm(
    share: float, truth: float, alpha: float, runs: int, events: int, seed: int
) -> Iterator[tuple[int, int]]:
    """Of each run that alarms: the number of events at the alarm, and of the canary's events."""
    yield from _first(share, truth, alpha, runs, events, seed, RISES, 1.0)


def _first(
    share: float,
    truth: float,
    alpha: float,
    runs: int,
    events: int,
    seed: int,
    factors: tuple[float, ...],
    ratio: float,
) -> Iterator[tuple[int, int]]:
    rng, shares = np.random.default_rng(seed), np.array([share])
    q = share * truth / (share * truth + 1 - share)
    total: Integers = np.arange(1, events + 1)
    for _ in range(runs):
        own: Integers = np.cumsum(rng.random(events) < q)
        reached = log_mean(logs_of(total[None, :], own[None, :], shares, factors, ratio)) >= -np.log(alpha)
        if reached.any():
            at = int(np.argmax(reached))
            yield at + 1, int(own[at])


def power(
    share: float, truth: float, alpha: float, runs: int, events: int, seed: int
) -> tuple[int | None, int | None, int | None, int | None]:
    """Events until 50 % and 90 % of the runs alarm, and the canary's events by then; None beyond `events`."""
    alarms = list(first_alarm(share, truth, alpha, runs, events, seed))
    columns = [sorted(column) for column in zip(*alarms, strict=True)] or [[], []]
    ranks = (int(0.5 * runs), int(0.9 * runs))
    middle, ninth, own, most_own = (
        column[rank] if rank < len(column) else None for column in columns for rank in ranks
    )
    return middle, ninth, own, most_own


def promotion(share: float, below: float, alpha: float, runs: int, events: int, seed: int) -> int | None:
    """Events until half of the runs of equal arms prove that the ratio is below a bound."""
    proofs = sorted(at for at, _ in _first(share, 1.0, alpha, runs, events, seed, FALLS, below))
    return int(proofs[runs // 2]) if runs // 2 < len(proofs) else None


# ── controls ──────────────────────────────────────────────────────────────────────────────────────────


def z_test(runs: int, peeks: int, seed: int, share: float = 0.05) -> int:
    """Runs of equal arms in which a one-sided z-test of 5 %, read after each event from the tenth on, alarms."""
    rng, n = np.random.default_rng(seed), np.arange(1, peeks + 1)
    limit = n * share + Z_95 * np.sqrt(n * share * (1 - share))
    limit[:9] = np.inf
    return sum(bool((np.cumsum(rng.random(peeks) < share) > limit).any()) for _ in range(runs))


def heavy_users(runs: int, peeks: int, seed: int, share: float = 0.05) -> tuple[int, int]:
    """Runs that alarm at 5 %, with every event of a user counted, and with one event of each user.

    Users have an arm each, and from 1 to 1,000 events: as 1/n^2, so that few users have most of the events.
    """
    rng, sizes, shares = np.random.default_rng(seed), np.arange(1, 1001), np.array([share])
    chances, alarms = 1 / sizes**2.0, [0, 0]
    chances /= chances.sum()
    for _ in range(runs):
        events = rng.choice(sizes, size=peeks, p=chances)
        arms = rng.random(peeks) < share
        user = rng.permutation(np.repeat(np.arange(peeks), events)[:peeks])
        _, first = np.unique(user, return_index=True)
        for i, canary in enumerate((arms[user], arms[user[np.sort(first)]])):
            total, own = _counts(np.array([0, len(canary)]), canary)
            alarms[i] += int(_highest(total, own, shares) >= np.log(20))
    return alarms[0], alarms[1]


def mismatches(runs: int, peeks: int, seed: int, share: float = 0.05) -> int:
    """Runs with the right shares in which the sample-ratio test of 0.1 % alarms after any subject."""
    rng, n = np.random.default_rng(seed), np.arange(peeks + 1)
    whole = gammaln(100.0) - gammaln(100.0 + n)
    parts = [gammaln(100 * w + n) - gammaln(100 * w) - n * np.log(w) for w in (share, 1 - share)]
    alarms = 0
    for _ in range(runs):
        own = np.cumsum(rng.random(peeks) < share)
        e = whole[1:] + parts[0][own] + parts[1][n[1:] - own]
        alarms += bool((e >= np.log(1000)).any())
    return alarms

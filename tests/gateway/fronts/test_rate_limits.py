"""The headers of limits, against a plain computation for each unit."""

from hypothesis import example, given
from hypothesis import strategies as st

from config.schema.limits import LimitsConfig
from gateway.fronts.rate_limits import headers
from gateway.limits.allowance import Allowance
from policies.limits.limits import RATED, Amounts

START = 1000.0
rates = st.builds("{}/{}".format, st.integers(1, 500), st.sampled_from(["s", "min", "h"]))
limits = st.builds(
    lambda given, enforce: LimitsConfig.model_validate({**given, "enforce": enforce}),
    st.dictionaries(st.sampled_from(["requests", "tokens", "rows"]), rates, min_size=1),
    st.sampled_from(["always", "shadow"]),
)
amounts = st.tuples(*[st.integers(0, 1000)] * len(RATED))
steps = st.lists(st.tuples(st.floats(0, 100), amounts, amounts), max_size=5)


def reference(allowances: list[Allowance], now: float) -> list[tuple[str, str]]:
    """The headers, from the definition of a bucket: each unit by the first bucket with the least remaining."""
    fields: list[tuple[str, str]] = []
    shown = [(unit, b) for a in allowances if not a.in_shadow for unit, b in a.buckets.items()]
    for unit in dict.fromkeys(unit for unit, _ in shown):
        least = min((b for u, b in shown if u == unit), key=lambda b: b.remaining(now))
        seconds = (least.capacity - least.level) / least.rate
        reset = f"{int(seconds * 1000)}ms"
        if seconds >= 1:
            minutes = int(seconds // 60)
            reset = f"{minutes}m{seconds % 60:.0f}s" if minutes else f"{seconds:.1f}s"
        name = unit.replace("_", "-")
        fields.append((f"x-ratelimit-limit-{name}", str(int(least.capacity))))
        fields.append((f"x-ratelimit-remaining-{name}", str(int(least.remaining(now)))))
        fields.append((f"x-ratelimit-reset-{name}", reset))
    return fields


def used(allowances: list[Allowance], taken: Amounts, charged: Amounts, now: float) -> None:
    for allowance in allowances:
        if (hold := allowance.take(taken, 0, now, now)) is not None:
            allowance.settle(hold, charged, 0, now)


@given(st.lists(limits, max_size=4), steps, st.floats(0, 60))
@example(
    [LimitsConfig.model_validate({"tokens": tokens}) for tokens in ("20/h", "10/h")],
    [(0.0, (1, 1, 0, 0, 0), (1, 100, 0, 0, 0))],  # both in debt
    0.0,
)
def test_headers_equal_the_reference(
    configs: list[LimitsConfig], calls: list[tuple[float, Amounts, Amounts]], idle: float
) -> None:
    now = START
    allowances = [Allowance(config, now, now) for config in configs]
    twins = [Allowance(config, now, now) for config in configs]
    for gap, taken, charged in calls:
        now += gap
        used(allowances, taken, charged, now)
        used(twins, taken, charged, now)
    now += idle
    assert headers(allowances, now) == reference(twins, now)

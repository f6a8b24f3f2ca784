"""Windows of drift: requests of any kind are counted as numpy counts them, or harmlessly left out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.tensors import DATATYPES, Tensor, join_bytes
from runtimes.tensor.configuration.model_config import Drift
from runtimes.tensor.drift import monitor as monitors
from runtimes.tensor.drift.monitor import MAX_BYTES, MAX_ENTRIES, DriftMonitor
from runtimes.tensor.drift.plans import FeaturePlan, TensorPlan
from runtimes.tensor.drift.sketches import labels_of, numbers_of

REFERENCE = np.random.default_rng(0).normal(size=(5000, 2))
PLANS = [
    TensorPlan("x", True, "FP32", 3, tuple(FeaturePlan(f"x{i}", i, numbers_of(REFERENCE[:, i], 10)) for i in (0, 1))),
    TensorPlan("city", True, "BYTES", 1, (FeaturePlan("city", 0, labels_of({b"Rome": 5, b"Oslo": 5})),)),
    TensorPlan("class", False, "INT64", 1, (FeaturePlan("class", 0, labels_of({b"0": 9, b"1": 1})),)),
]


def numbers(rows: Any) -> Tensor:
    values = np.asarray(rows, np.float32)
    return Tensor("x", "FP32", values.shape, values.tobytes())


def texts(*cities: bytes) -> Tensor:
    return Tensor("city", "BYTES", (len(cities), 1), join_bytes(cities))


def classes(*kinds: int) -> Tensor:
    return Tensor("class", "INT64", (len(kinds), 1), np.array(kinds, "<i8").tobytes())


@pytest.fixture(autouse=True, scope="module")
def at_once() -> Iterator[None]:
    """Entries are counted in the next turn of the loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitors, "DELAY", 0.0)
        yield


@asynccontextmanager
async def monitoring(**settings: Any) -> AsyncIterator[DriftMonitor]:
    clock: Callable[[], float] = asyncio.get_running_loop().time
    monitor = DriftMonitor(PLANS, Drift("t.csv", **settings), clock)
    try:
        yield monitor
    finally:
        await monitor.aclose()


async def counted(monitor: DriftMonitor, rows: int) -> None:
    async with asyncio.timeout(60):
        while monitor.rows < rows:
            await asyncio.sleep(0.01)


async def figures(monitor: DriftMonitor) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (report := monitor.report) is None:
            await asyncio.sleep(0.01)
    return {one.name: one for one in report.features}


async def test_a_window_has_the_figures_of_all_of_its_rows() -> None:
    rows = np.random.default_rng(1).normal(size=(600, 3)).astype(np.float32) + np.array([0, 3, 0])
    async with monitoring(rows=600) as monitor:
        for at in range(0, 600, 3):
            cities = [b"Rome", b"Oslo", b"Paris"]
            monitor.observe([numbers(rows[at : at + 3]), texts(*cities)], [classes(1, 1, 0)])
        seen = await figures(monitor)
    for at, plan in enumerate(PLANS[0].features):
        counts = plan.sketch.count(rows[:, at].astype(np.float32).astype(float))
        assert (seen[plan.name].psi, seen[plan.name].ks) == (plan.sketch.psi(counts), plan.sketch.ks(counts))
    assert seen["x0"].psi < 0.1 < 1 < seen["x1"].psi
    assert seen["city"].psi > 0.25
    assert seen["city"].shares == {}
    assert seen["class"].shares == pytest.approx({"0": 1 / 3, "1": 2 / 3, "other": 0})


async def test_a_window_with_few_rows_ends_at_its_age_unless_they_are_too_few() -> None:
    now = [0.0]
    monitor = DriftMonitor(PLANS, Drift("t.csv", max_age=60.0), lambda: now[0])
    now[0] = 61.0
    monitor.observe([numbers(np.zeros((499, 3)))], [])
    await counted(monitor, 499)
    assert monitor.report is None
    monitor.observe([numbers(np.zeros((1, 3)))], [])
    assert (await figures(monitor))["x0"].psi > 1
    await monitor.aclose()


async def test_a_window_is_forgotten_when_no_other_has_ended_for_twice_its_age() -> None:
    now = [0.0]
    monitor = DriftMonitor(PLANS, Drift("t.csv", rows=100, max_age=60.0), lambda: now[0])
    monitor.observe([numbers(np.zeros((100, 3)))], [])
    assert await figures(monitor)
    is_reported = []
    for now[0] in (120.0, 121.0):
        is_reported.append(monitor.report is not None)
    assert is_reported == [True, False]
    await monitor.aclose()


@st.composite
def any_tensor(draw: st.DrawFn) -> Tensor:
    """A tensor of any name, datatype, shape and data, which need not fit each other."""
    name = draw(st.sampled_from(["x", "city", "class", "other"]))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    return Tensor(name, draw(st.sampled_from(sorted(DATATYPES))), shape, draw(st.binary(max_size=200)))


@given(st.lists(st.tuples(st.lists(any_tensor(), max_size=4), st.lists(any_tensor(), max_size=2)), max_size=6))
async def test_tensors_of_any_kind_change_nothing_for_those_that_fit(entries: Any) -> None:
    async with monitoring(rows=100) as monitor:
        for inputs, outputs in entries:
            monitor.observe(inputs, outputs)
        monitor.observe([numbers(np.zeros((3, 3)))], [])
        await counted(monitor, 3)
        assert monitor.skipped == 0


async def test_numbers_of_every_kind_are_harmless() -> None:
    rows = [[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf, 0, 0], [3e38, 0, 0], [-0.0, 1e-45, 0]] * 20
    async with monitoring(rows=100) as monitor:
        monitor.observe([numbers(rows)], [classes(2**63 - 1, -(2**63))])
        seen = await figures(monitor)
    assert seen["x0"].psi > 0.25
    assert np.isfinite([seen["x0"].psi, seen["x0"].ks]).all()
    assert seen["class"].shares["other"] == 1.0


async def test_more_than_can_be_counted_is_skipped_and_frees_its_memory() -> None:
    large = numbers(np.zeros((MAX_BYTES // 12 // 2 + 1, 3)))
    async with monitoring() as monitor:
        for _ in range(3):
            monitor.observe([large], [])
        assert monitor.skipped == 2
        await counted(monitor, 1)
        for _ in range(5 * MAX_ENTRIES):
            monitor.observe([numbers([[0, 0, 0]])], [])
        assert monitor.skipped > 2
        before = monitor.rows
        await counted(monitor, before + MAX_ENTRIES)


async def test_a_monitor_that_is_closed_counts_no_more() -> None:
    async with monitoring() as monitor:
        monitor.observe([numbers(np.zeros((3, 3)))], [])
    await asyncio.sleep(0)
    assert monitor.rows == 0

"""The decider's loop: shares follow decisions, and nothing is lost or counted twice while the database is away."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.features.rollouts.decider import LONGEST
from gateway.features.rollouts.metrics import ComparisonMetrics
from gateway.features.rollouts.operators import views
from gateway.state.errors import StoreUnavailable
from policies.rollouts.decide import OrderRefused
from tests.support.gateways import config
from tests.support.rollouts import OPERATOR, Process, progress_of, written

pytestmark = pytest.mark.usefixtures("plain_generations")


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    one = Process(written(f"sqlite:///{tmp_path}/state.db"))
    yield one
    await one.decider.aclose()


async def test_a_healthy_rollout_goes_to_all_requests_by_itself(process: Process) -> None:
    assert process.shares == {0.0}
    await process.tick()
    assert process.shares == {0.2}
    for share in (0.2, 0.5):
        assert process.shares == {share}
        process.requests(40, 10 if share == 0.2 else 40)
        for _ in range(12):
            await process.tick()
    assert process.shares == {1.0}
    assert process.decider.progress["r"].status == "done"


async def test_failures_over_all_workers_take_it_back(process: Process) -> None:
    await process.tick()
    process.requests(80, 20, (1, 9))
    await process.tick()
    assert process.shares == {0.0}
    assert (process.decider.progress["r"].status, process.decider.progress["r"].reason) == ("back", "failures")


async def test_without_the_database_the_shares_stay_and_counts_wait(process: Process, tmp_path: Path) -> None:
    await process.tick()
    database, away = tmp_path / "state.db", tmp_path / "away.db"
    database.rename(away)
    for _ in range(3):
        process.requests(80, 20, (1, 3))
        await process.tick()
    assert process.shares == {0.2}
    assert process.decider.available is False
    with pytest.raises(StoreUnavailable):
        await process.decider.order("r", "back", OPERATOR)
    away.rename(database)
    await process.tick()
    assert process.decider.progress["r"].strata[0].events == {"failures": [3, 9]}
    assert process.shares == {0.0}


async def test_a_start_without_a_database_leaves_all_requests_with_the_old_arm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = Process(written(f"sqlite:///{tmp_path}/file/state.db"))
    await process.decider.open()
    assert process.decider.orders == []
    assert process.shares == {0.0}
    await process.tick()
    assert not process.decider.available


async def test_a_restart_continues_with_the_stored_share(process: Process) -> None:
    await process.tick()
    process.requests(40, 10)
    for _ in range(12):
        await process.tick()
    assert process.shares == {0.5}
    await process.decider.aclose()
    again = Process(process.config)
    await again.decider.open()
    await again._exchange(again.decider.orders)
    assert again.shares == {0.5}
    await again.decider.aclose()


async def test_a_reload_preserves_the_state_and_changed_arms_begin_anew(process: Process) -> None:
    await process.tick()
    process.requests(40, 10)
    await process.tick()
    process.reload(written(process.config.state.database, alpha="5%"))
    assert process.shares == {0.2}
    await process.tick()
    assert process.decider.progress["r"].strata[0].assigned == [40, 10]
    process.reload(written(process.config.state.database, to="v3"))
    assert process.shares == {0.0}
    await process.tick()
    assert process.shares == {0.2}
    progress = process.decider.progress["r"]
    assert (progress.generation, progress.strata[0].assigned) == (2, [0, 0])


async def test_a_clock_that_jumps_passes_no_step(process: Process) -> None:
    """A machine that slept has observed nothing; a clock that goes back does no harm."""
    process.reload(written(process.config.state.database, steps=[{"weight": "20%", "for": "1h"}]))
    await process.tick()
    process.requests(40, 10)
    await process.tick(1e6)
    assert progress_of(process).step == 0
    assert process.decider.progress["r"].elapsed <= 1 + LONGEST
    await process.tick(-5e5)
    assert process.decider.progress["r"].elapsed >= 0
    assert process.shares == {0.2}


async def test_an_operator_s_order_acts_at_once(process: Process) -> None:
    await process.tick()
    await process.decider.order("r", "back", OPERATOR)
    assert process.shares == {0.0}
    await process.decider.order("r", "on", OPERATOR)
    assert process.shares == {0.2}
    with pytest.raises(OrderRefused, match="no rollout"):
        await process.decider.order("other", "on", OPERATOR)


async def test_a_rollout_that_left_the_file_is_shown_and_no_longer_decided(process: Process) -> None:
    await process.tick()
    stored = dict(process.decider.progress)
    process.config = config(state={"database": process.config.state.database})
    await process.tick()
    assert process.decider.progress == {}
    assert views(process.decider.planned, stored)[0]["reason"] == "not in the file"


async def test_the_metrics_show_the_evidence(process: Process) -> None:
    await process.tick()
    process.requests(80, 20, (1, 2))
    await process.tick()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in ComparisonMetrics(process.decider).collect()
        for sample in family.samples
    }
    assert samples["headrace_rollout_weight", "r"] == 0.2
    assert samples["headrace_rollout_status", "r", "running"] == 1
    assert samples["headrace_rollout_status", "r", "back"] == 0
    assert samples["headrace_rollout_events", "r", "failures", "to"] == 2
    assert samples["headrace_rollout_e_value", "r", "back_if", "failures"] > 1
    assert samples[("headrace_rollout_database_available",)] == 1

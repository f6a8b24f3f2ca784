"""A small run of the benchmark of replays: the same file changes nothing, and other weights change arms only."""

import json

import pytest

from loadtests import bench_replay


def test_a_replay_of_repeated_records_changes_no_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_replay.main(["--recorded", "200", "--records", "500"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["decisions"], figures["changed"]) == (600, {})
    changed = figures["changed_by_weight"]
    assert 0 < changed["arm"] == changed["pool"] <= changed["changed"] < 200

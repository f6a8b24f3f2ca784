"""The bench of pipelines: both servers get the same ensembles, and figures have the names of the README."""

import json
from pathlib import Path

import pytest

from loadtests.bench_pipelines import NAMES, EnsembleLoad, parse, repository
from loadtests.tensors.report import Measured, document
from runtimes.tensor.configuration.reading import read_model


@pytest.mark.parametrize("kind", ["headrace", "triton"])
def test_the_ensembles_fit_their_model(tmp_path: Path, kind: str) -> None:
    folder = repository(tmp_path, kind)
    assert {path.name for path in folder.iterdir()} == {*NAMES, "add_sub"}
    for name in NAMES:
        config = read_model(folder / name, name, [folder / name / "1"]).config
        assert config.ensemble is not None
        assert {step.model for step in config.ensemble.steps} == {"add_sub"}


def test_ratios_are_named_after_ensemble_and_callers() -> None:
    load = EnsembleLoad("ensemble", "plain", 8)
    rounds = [{"headrace": {f"rps_{load.name}": 300.0}, "triton": {f"rps_{load.name}": 200.0}}]
    written = json.loads(document([Measured(load, rounds, 0, {})], {}))
    assert written["ratios"] == {"rps_ensemble_8/triton": 1.5}
    assert parse(["--callers", "1,4"]).callers == [1, 4]

"""The bench of pipelines: both servers get the same ensembles, and figures have the names of the README."""

import json
from pathlib import Path

import pytest
import yaml

from config.loader import load
from loadtests.bench_pipelines import EnsembleLoad, added_milliseconds
from loadtests.tensors.ensemble_targets import NAMES, PIPELINE, pipelines, repository
from loadtests.tensors.headrace import config
from loadtests.tensors.report import Measured, document
from runtimes.tensor.configuration.reading import read_model

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("kind", ["headrace", "triton"])
def test_the_ensembles_fit_their_model(tmp_path: Path, kind: str) -> None:
    folder = repository(tmp_path, kind)
    assert {path.name for path in folder.iterdir()} == {*NAMES, "add_sub"}
    for name in NAMES:
        config = read_model(folder / name, name, [folder / name / "1"]).config
        assert config.ensemble is not None
        assert {step.model for step in config.ensemble.steps} == {"add_sub"}


def test_the_pipelines_have_the_steps_of_the_ensembles(tmp_path: Path) -> None:
    folder = repository(tmp_path, "triton")
    for name, pipeline in pipelines().items():
        ensemble = read_model(folder / name, name, []).config.ensemble
        assert ensemble is not None
        assert len(pipeline["steps"]) == len(ensemble.steps)
    file = tmp_path / "headrace.yaml"
    written = config(tmp_path, (1, 2, 3), "oip-http", "http://127.0.0.1:4", ["add_sub"], pipelines())
    file.write_text(yaml.safe_dump(written))
    assert {model.name for model in load(file).models} == {"add_sub", *NAMES}


def test_the_added_time_is_that_of_the_same_round() -> None:
    workload = EnsembleLoad("ensemble", "plain", 1)
    rounds = [
        {PIPELINE: {"p50_ms_ensemble_1": 2.0}, "triton": {"p50_ms_ensemble_1": 0.5}},
        {PIPELINE: {"p50_ms_ensemble_1": 3.0}, "triton": {"p50_ms_ensemble_1": 2.5}},
        {PIPELINE: {"p50_ms_ensemble_1": 1.0}},
    ]
    assert added_milliseconds([Measured(workload, rounds, 0, {})]) == {"ensemble_1": 1.0}


def test_ratios_are_named_after_ensemble_and_callers() -> None:
    workload = EnsembleLoad("ensemble", "plain", 8)
    rounds = [{"headrace": {f"rps_{workload.name}": 300.0}, "triton": {f"rps_{workload.name}": 200.0}}]
    written = json.loads(document([Measured(workload, rounds, 0, {})], {}))
    assert written["ratios"] == {"rps_ensemble_8/triton": 1.5}

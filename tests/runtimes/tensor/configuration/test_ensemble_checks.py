"""The configuration of an ensemble: read from both files, reported, and its mistakes with their lines."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from config.problem import ConfigError
from runtimes.tensor.configuration.checks import check
from runtimes.tensor.configuration.model_config import Ensemble, ModelConfig
from runtimes.tensor.configuration.reading import read_model, read_override
from runtimes.tensor.configuration.triton import to_json
from tests.support.cases import cases
from tests.support.random_ensembles import random_ensemble

pytestmark = pytest.mark.plain
DIAMOND, YAML = (Path(__file__).with_name(f"diamond.{kind}").read_text() for kind in ("pbtxt", "yaml"))


def read(folder: Path, text: str, file: str = "config.pbtxt") -> ModelConfig:
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    return read_model(folder, "diamond", []).config


def mistakes(folder: Path, text: str, file: str = "config.pbtxt") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, file)
    return [str(problem).partition(f"{file}:")[2] for problem in caught.value.problems]


def test_both_files_give_the_same_ensemble(tmp_path: Path) -> None:
    config = read(tmp_path / "a", DIAMOND)
    assert config == read(tmp_path / "b", YAML, "model.yaml")
    assert config.ensemble is not None
    assert config.ensemble.max_inflight_requests == 4
    assert [(step.model, step.version) for step in config.ensemble.steps] == [
        ("top", -1), ("left", 3), ("right", -1), ("join", -1),
    ]  # fmt: skip
    assert (config.backend, config.platform) == ("ensemble", "ensemble")


def test_the_reported_configuration_can_be_sent_again(tmp_path: Path) -> None:
    config = read(tmp_path, DIAMOND)
    reported = to_json(config)
    assert reported["platform"] == "ensemble"
    assert reported["backend"] == ""
    assert reported["instance_group"] == []
    assert reported["model_transaction_policy"] == {"decoupled": False}
    assert "optimization" not in reported
    assert reported["ensemble_scheduling"]["step"][3]["input_map"] == {"L": "l", "R": "r"}
    assert read_override(json.dumps(reported), "diamond", tmp_path, []).config == config


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    cases(__file__, "mistakes"),
)
def test_a_mistake_is_reported_with_its_step(tmp_path: Path, old: str, new: str, reported: str) -> None:
    assert old in DIAMOND
    problems = mistakes(tmp_path, DIAMOND.replace(old, new, 1))
    assert any(reported in problem for problem in problems), problems


def test_a_cycle_names_its_steps(tmp_path: Path) -> None:
    (problem,) = mistakes(tmp_path, DIAMOND.replace('{ key: "X" value: "y" }', '{ key: "X" value: "OUT" }', 1))
    assert "can never start, because it is part of a cycle: " in problem
    assert "step 1 (`left`)" in problem
    assert "step 3 (`join`)" in problem
    assert "step 2" not in problem


def test_an_ensemble_needs_its_steps(tmp_path: Path) -> None:
    assert "ensemble_scheduling: is required" in mistakes(tmp_path, 'platform: "ensemble"')[0]
    assert "an ensemble has at least one step" in mistakes(tmp_path, 'platform: "ensemble" ensemble_scheduling { }')[0]


def test_a_valid_ensemble_with_one_changed_tensor_is_refused_or_still_valid() -> None:
    """Random ensembles are valid before the change; each rename of one tensor at one place is a mistake."""
    for seed in range(200):
        rng = random.Random(seed)
        config = random_ensemble(rng)
        assert list(check(config)) == [], seed
        assert config.ensemble is not None
        steps = list(config.ensemble.steps)
        at = rng.randrange(len(steps))
        if rng.random() < 0.5:
            changed = replace(steps[at], inputs={**steps[at].inputs, "I0": "stray"})
        else:
            changed = replace(steps[at], outputs={**steps[at].outputs, "O0": "stray"})
        steps[at] = changed
        complaints = list(check(replace(config, ensemble=Ensemble(tuple(steps)))))
        assert complaints, seed
        assert all(complaint.message for complaint in complaints)

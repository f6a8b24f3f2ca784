"""Each change of a right configuration causes its problems and warnings, and no others."""

from pathlib import Path

import pytest

from config.loader import read
from tests.config.checks.changes import NAMES, changed, document, expected
from tests.config.conftest import Complaints

WITH_WARNINGS = {"advice"}
"""The files whose cases list warnings too."""


@pytest.mark.parametrize("name", NAMES)
def test_a_change_causes_its_problems(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s" * 32)
    tests = document(name)
    for file, content in tests["files"].items():
        (tmp_path / file).write_text(content)
    path = tmp_path / "headrace.yaml"
    assert read(path, tests["file"]).problems == ()
    for case in tests["cases"]:
        reading = read(path, changed(tests["file"], case))
        for kind, problems in (("problems", reading.problems), ("warnings", reading.warnings)):
            texts = [str(problem).removeprefix(f"{path}:").replace(str(tmp_path), "{folder}") for problem in problems]
            reported = [text.replace(" warning:", "", 1) for text in texts]
            if kind == "problems" or name in WITH_WARNINGS:
                assert reported == expected(case, kind), case


def test_fifty_tenants_are_enough_to_compare_tenants(complaints: Complaints) -> None:
    text = document("rollouts")["file"].replace("to: v2", "to: v2\n          sticky: tenant")
    for count, right in ((49, False), (50, True)):
        tenants = ", ".join(f'{{name: t{i}, models: ["*"]}}' for i in range(count))
        assert (complaints(text.replace('{name: acme, models: ["*"]}', tenants)) == []) is right


def test_labels_are_bounded(complaints: Complaints) -> None:
    many = f"labels: {{{', '.join(f'l{i}: x' for i in range(17))}}}"
    text = document("grants")["file"].replace('labels: {team: search, cost-centre: "17"}', many)
    assert complaints(text) == ["20: tenants[0].keys[0].labels: takes 16 entries at most"]

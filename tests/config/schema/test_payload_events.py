"""Mistakes in `payload_events`, with their lines."""

from pathlib import Path

import pytest

from config.loader import load
from config.problem import ConfigError

FILE = """version: 1
pools: [{{name: p, endpoints: ["http://127.0.0.1:9"]}}]
models:
  - name: m
    routes: [{{to: p}}]
    payload_events:
      {0}
tenants: [{{name: t, models: ["*"]}}]
"""
MISTAKES = {
    "share: 10%": "give either `to` or a `broker` with a `topic`",
    "{to: http://a/b, broker: kafka://a:1, topic: t}": "give either `to` or a `broker` with a `topic`",
    "broker: kafka://a:1": "`broker` and `topic` go together",
    "{broker: kafka://a:1, topic: t, key: 'file:k'}": "`key` is for the receiver in `to`",
    "to: ftp://a/b": "http://HOST/PATH",
    "{to: http://a/b, share: 0%}": "share",
    "{to: http://a/b, mode: some}": "mode",
    "{to: http://a/b, shares: 1%}": "unknown field",
    "{to: http://a/b, namespace: A b}": "a namespace of Kubernetes",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, written: str) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(FILE.format(written))
    (tmp_path / "k").write_text("secret")
    with pytest.raises(ConfigError) as refused:
        load(file)
    (problem,) = refused.value.problems
    assert MISTAKES[written] in f"{problem.path}: {problem.message}"
    assert problem.line in (6, 7)


def test_the_section_is_absent_unless_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(FILE.replace("    payload_events:\n      {0}\n", "").format())
    assert load(file).models[0].payload_events is None

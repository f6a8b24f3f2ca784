"""Runtimes that their device cannot hold."""

import pytest

from tests.config.conftest import Complaints

BASE = """version: 1
devices:
  - {{name: gpu0, memory: 8GiB}}
pools:
  - name: a
    runtime: {{kind: llm, model: m, replicas: {a}}}
  - name: b
    runtime: {{kind: llm, model: m, replicas: {b}}}
models:
  - {{name: chat, routes: [{{to: a}}]}}
  - {{name: code, routes: [{{to: b}}]}}
tenants:
  - {{name: acme, models: ["*"], keys: [{{id: k, hash: "{hash}"}}]}}
"""
HASH = "0" * 64
FITS = "{min: 0, device: gpu0, memory: 6GiB}"


def written(a: str, b: str) -> str:
    return BASE.format(a=a, b=b, hash=HASH)


@pytest.mark.parametrize(
    ("a", "problem"),
    [
        ("{min: 0, device: gpu0, memory: 9GiB}", "memory: exceeds the 8GiB of gpu0: it could never be loaded"),
        ("{min: 0, device: gpu1, memory: 1GiB}", 'device: there is no device "gpu1": add it to `devices`'),
        ("{min: 0, device: gpu0}", "device: needs `memory`, the size of the runtime"),
        ("{min: 1, device: gpu0, memory: 1GiB}", "device: needs `min: 0` and `max: 1`"),
        ("{min: 0, max: 2, device: gpu0, memory: 1GiB}", "device: needs `min: 0` and `max: 1`"),
        ("{min: 0, memory: 1GiB}", "memory: has no effect without `device`"),
    ],
)
def test_a_model_that_its_device_cannot_hold_is_refused(complaints: Complaints, a: str, problem: str) -> None:
    lines = [line for line in complaints(written(a, FITS)) if "pools[0]" in line]
    assert len(lines) == 1
    assert f"pools[0].runtime.replicas.{problem}" in lines[0]


def test_a_pinned_model_takes_its_memory_from_the_others(complaints: Complaints) -> None:
    pinned = "{min: 0, device: gpu0, memory: 3GiB, pinned: true}"
    [line] = complaints(written(pinned, FITS))
    assert "pools[1].runtime.replicas.memory: exceeds the 5GiB of gpu0 beside its pinned models" in line


def test_a_device_without_a_runtime_has_no_effect(complaints: Complaints) -> None:
    [line] = complaints(written("1", "1"))
    assert "devices[0].name: has no effect: no runtime has it as `replicas.device`" in line


def test_models_that_fit_one_at_a_time_are_valid(complaints: Complaints) -> None:
    assert complaints(written(FITS, FITS)) == []

"""Runtimes in Ray clusters: settings that conflict, and settings for the gateway's machine."""

import pytest

from tests.config.conftest import Complaints

BASE = """version: 1
pools:
  - name: a
    runtime: {{{runtime}}}
models:
  - {{name: chat, routes: [{{to: a}}]}}
tenants:
  - {{name: acme, models: ["*"], keys: [{{id: k, hash: "{hash}"}}]}}
"""
LLM = "kind: llm, model: bundled:m"
RAY = "on: ray, ray: {address: 10.0.0.1:6379}"


def written(runtime: str) -> str:
    return BASE.format(runtime=runtime, hash="0" * 64)


@pytest.mark.parametrize(
    ("runtime", "problem"),
    [
        (f"{LLM}, on: ray", "`on: ray` needs `ray: {address: ...}`"),
        (f"{LLM}, ray: {{address: auto}}", "runtime.ray: has no effect without `on: ray`"),
        (f"{LLM}, on: local, resources: {{gpus: 1}}", "runtime.resources: has no effect without `on: ray`"),
        (
            f"{LLM}, {RAY}, replicas: {{cpus: 2}}",
            "cpus: is for the gateway's machine: with `on: ray`, write `resources`",
        ),
        (f"{LLM}, {RAY}, replicas: {{gpus: 2}}", "gpus: is for the gateway's machine"),
        (f"{LLM}, {RAY}, replicas: {{min: 0, device: d}}", "device: is for the gateway's machine"),
        (f"kind: llm, model: m.gguf, {RAY}", "model: is relative to the working directory, which nodes do not have"),
        (f"kind: tensor, repository: models, {RAY}", "repository: is relative to the working directory"),
        (f"{LLM}, on: ray, ray: {{address: http://head}}", "`auto`, HOST:PORT or ray://HOST:PORT of a Ray cluster"),
        (f"{LLM}, {RAY}, resources: {{custom: {{GPU: 1}}}}", "custom: GPU is not a custom resource: write `gpus`"),
        (f"{LLM}, {RAY}, resources: {{custom: {{a100: 0}}}}", "custom.a100"),
        (f"{LLM}, {RAY}, resources: {{memory: 0MiB}}", "resources.memory"),
        ("kind: vllm, model: /m, on: ray", "on"),
    ],
)
def test_conflicts_are_refused_with_their_line(complaints: Complaints, runtime: str, problem: str) -> None:
    problems = [each for each in complaints(written(runtime)) if problem in each]
    assert problems
    assert all(each.startswith("4: ") for each in problems)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "ray://head.example:10001"])
def test_clusters_are_accepted_by_each_form_of_address(complaints: Complaints, address: str) -> None:
    resources = "resources: {cpus: 4, gpus: 0.5, memory: 8GiB, custom: {a100: 1}}"
    ray = f"on: ray, ray: {{address: '{address}', strategy: pack, lease: 1m}}"
    assert complaints(written(f"{LLM}, {ray}, {resources}, replicas: {{min: 0, max: 4}}")) == []

"""Endpoints that the gateway cannot put to sleep."""

import pytest

from tests.config.conftest import Complaints

BASE = """version: 1
pools:
  - name: a
    {pool}
models:
  - {{name: chat, routes: [{{to: a}}]}}
tenants:
  - {{name: acme, models: ["*"], keys: [{{id: k, hash: "{hash}"}}]}}
"""
HASH = "0" * 64
VLLM = "protocol: {name: openai, dialect: vllm}"
TWO = "endpoints: [http://127.0.0.1:8000, http://127.0.0.1:8001]"


def written(*fields: str) -> str:
    return BASE.format(pool="\n    ".join(fields), hash=HASH)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ((TWO, "scale: {min: 0, max: 2, sleep: 1}"), "scale.sleep: needs servers of vLLM: write"),
        ((TWO, "protocol: oip-http", "scale: {min: 0, max: 2, sleep: 1}"), "scale.sleep: needs servers of vLLM: write"),
        ((TWO, VLLM, "probe: null", "scale: {min: 0, max: 2, sleep: 1}"), "scale.sleep: needs the health check"),
        ((TWO, VLLM, "scale: {min: 1, max: 3, sleep: 1}"), "scale.max: exceeds the 2 written `endpoints`"),
        ((TWO, VLLM, "scale: {min: 0, max: 2, sleep: 3}"), "scale.sleep: expected 1 or 2"),
        (("discover: {dns: 'm.test:80'}", VLLM, "scale: {min: 0, sleep: 2}"), "scale.sleep: is for written"),
        ((TWO, VLLM, "scale: {min: 0, max: 2}"), "scale: has no effect without `discover`, `sleep` or `deployment`"),
        (("runtime: {kind: llm, model: m}", "scale: {min: 0, sleep: 1}"), "scale: has no effect on a runtime"),
    ],
)
def test_endpoints_that_cannot_sleep_are_refused(complaints: Complaints, fields: tuple[str, ...], problem: str) -> None:
    lines = complaints(written(*fields))
    assert len([line for line in lines if f"pools[0].{problem}" in line]) == 1, lines


def test_servers_of_vllm_may_sleep(complaints: Complaints) -> None:
    assert complaints(written(TWO, VLLM, "scale: {min: 0, max: 2, sleep: 2, prewarm: true}")) == []

"""Explanations and tests of policies name the guards of a request, and why a client is exempt."""

from pathlib import Path

import pytest

from config.cases import load_cases
from config.loader import load
from gateway.features.explain import cases
from gateway.features.explain.why import Policy
from tests.config.conftest import RIGHT

POLICY = RIGHT.replace("      - to: vllm\n", "      - to: vllm\n        guards: [links]\n").replace(
    "models:\n  - name: chat\n", "models:\n  - name: chat\n    guards: [names, keys]\n"
) + (
    "guards:\n"
    "  - {name: links, kind: urls, deny: [evil.example], exempt: {roles: [operator], keys: [k1]}}\n"
    "  - {name: names, kind: words, words: [zebra], action: mask, mode: monitor}\n"
    "  - {name: keys, kind: secrets, exempt: {roles: [operator]}}\n"
)


def failures(tmp_path: Path, request: str, expect: str) -> list[str]:
    policy, file = tmp_path / "policy.yaml", tmp_path / "tests.yaml"
    policy.write_text(POLICY)
    file.write_text(f"tests: [{{request: {{tenant: acme, model: chat{request}}}, expect: {expect}}}]")
    return [str(failure) for failure in cases.run(Policy.of(load(policy)), load_cases(file))]


@pytest.mark.parametrize(
    ("request_fields", "guards"),
    [("", "[links, names, keys]"), (", key: k1", "[names, keys]"), (", roles: [operator]", "[names]")],
)
def test_a_test_of_a_policy_expects_guards(tmp_path: Path, request_fields: str, guards: str) -> None:
    assert failures(tmp_path, request_fields, f"{{guards: {guards}, pool: vllm}}") == []


def test_a_failed_test_shows_both_lists_and_every_exemption(tmp_path: Path) -> None:
    (failure,) = failures(tmp_path, ", key: k1, roles: [operator]", "{guards: []}")
    assert "expected guards none, got names\n" in failure
    assert "  guards: names (mask, monitor)\n" in failure
    assert "  exempt from guards: links (key k1), keys (role operator)\n" in failure


def test_the_order_is_that_of_the_file(tmp_path: Path) -> None:
    (failure,) = failures(tmp_path, "", "{guards: [keys, names, links]}")
    assert "expected guards keys, names, links, got links, names, keys" in failure

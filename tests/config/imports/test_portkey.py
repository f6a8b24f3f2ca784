"""Configs of Portkey become routes that pass the check, and no value of them is lost silently."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from config.document import parse_text
from config.imports.draft import ImportFailed
from config.imports.portkey import convert
from config.problem import ConfigError
from gateway.process.commands import app

OPENAI = {"provider": "openai", "api_key": "sk-1", "override_params": {"model": "gpt-4o"}}
CLAUDE = {"virtual_key": "anthropic-team", "override_params": {"model": "claude-sonnet-4-5"}}
FILES: dict[str, dict[str, Any]] = {
    "single": {"provider": "openai", "api_key": "sk-1"},
    "balanced": {
        "strategy": {"mode": "loadbalance"},
        "targets": [{**OPENAI, "weight": 0.7}, {**CLAUDE, "weight": 0.3}],
        "retry": {"attempts": 2},
        "cache": {"mode": "simple", "max_age": 60},
    },
    "fallback": {
        "strategy": {"mode": "fallback", "on_status_codes": [429, 500, 401]},
        "targets": [OPENAI, {"strategy": {"mode": "loadbalance"}, "targets": [CLAUDE, {**OPENAI, "api_key": "sk-2"}]}],
        "cache": {"mode": "simple", "max_age": 3600},
        "request_timeout": 700000,
    },
    "conditional": {
        "strategy": {
            "mode": "conditional",
            "conditions": [
                {"query": {"metadata.plan": {"$eq": "paid"}}, "then": "good"},
                {"query": {"$and": [{"metadata.a": "x"}, {"params.stream": True}]}, "then": "good"},
                {"query": {"params.model": {"$in": ["a", "b"]}}, "then": "cheap"},
                {"query": {"$or": [{"metadata.a": "y"}, {"params.max_tokens": {"$lte": 9}}]}, "then": "cheap"},
                {"query": {"metadata.age": {"$gt": 3}}, "then": "good"},
            ],
            "default": "cheap",
        },
        "targets": [{"name": "good", **OPENAI}, {"name": "cheap", **CLAUDE}],
        "override_params": {"temperature": 0},
    },
    "clouds": {
        "targets": [
            {"provider": "azure-openai", "azureResourceName": "corp", "azureDeploymentId": "gpt", "apiKey": "sk-3"},
            {"provider": "openai", "custom_host": "http://10.0.0.1:8000/v1", "api_key": "sk-4", "weight": 1},
            {"provider": "stability-ai", "api_key": "sk-5"},
            {"virtual_key": "unnamed-9f3"},
            {"provider": "@groq-prod", "override_params": {"model": "@groq-prod/llama-3.3-70b"}},
        ],
        "before_request_hooks": [{"id": "g1"}],
        "cache": {"mode": "semantic"},
    },
    "several": {
        "data": [
            {"slug": "pc-one", "config": {"provider": "openai", "api_key": "sk-1"}},
            {"slug": "pc-two", "config": {"targets": [CLAUDE]}},
            {"slug": "pc-text", "config": "{}"},
        ]
    },
}


def imported(data: Any, model: str = "*") -> tuple[str, list[str]]:
    draft, left = convert(parse_text(json.dumps(data, indent=1), "config.json"), model)
    return draft.text(), [f"{problem.path}: {problem.message}" for problem in left]


def routes(name: str) -> list[dict[str, Any]]:
    text, _ = imported(FILES[name])
    made: list[dict[str, Any]] = json.loads(json.dumps(parse_text(text, "headrace.yaml").data))["models"][0]["routes"]
    return made


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in entries:
        yield from places(inner, (*place, step))
    if not isinstance(value, dict | list):
        yield place


@pytest.mark.parametrize("name", FILES)
def test_every_value_changes_the_result_or_is_reported(name: str) -> None:
    before = imported(FILES[name])
    assert "sk-" not in "".join((before[0], *before[1]))
    for place in places(FILES[name]):
        changed = inner = copy.deepcopy(FILES[name])
        for step in place[:-1]:
            inner = inner[step]
        value = inner[place[-1]]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        inner[place[-1]] = not value if isinstance(value, bool) else value + 9 if number else "z"
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
        if value == "sk-1" or any(path.startswith(line.split(": ")[0]) for line in before[1]):
            continue
        try:
            after = imported(changed)
        except (ConfigError, ImportFailed):
            continue
        assert after != before or place[-1] in ("api_key", "apiKey"), path


def test_trees_become_splits_and_fallbacks() -> None:
    [balanced] = routes("balanced")
    assert [arm["weight"] for arm in balanced["split"]["arms"]] == [0.7, 0.3]
    assert (balanced["retry"], "cache" in balanced) == ({"attempts": 3}, False)
    [fallback] = routes("fallback")
    assert fallback["fallback"][0]["on"] == ["capacity", "backend"]
    assert len(fallback["fallback"][0]["split"]["arms"]) == 2
    assert fallback["timeout"]["total"] == "700s"
    assert fallback["cache"] == {"only": "all", "ttl": "3600s"}


def test_no_secret_is_written_into_a_rewrite() -> None:
    target = {**OPENAI, "override_params": {"model": "gpt-4o", "api_key": "s3cret", "max_tokens": 7}}
    text, left = imported(target)
    assert "s3cret" not in text + repr(left)
    assert any("may be a secret" in each for each in left)
    assert "max_tokens: 7" in text


def test_conditions_become_routes() -> None:
    made = routes("conditional")
    assert [route.get("when") for route in made] == [
        {"label": {"plan": "paid"}},
        {"label": {"a": "x"}, "stream": True},
        {"model": ["a", "b"]},
        {"label": {"a": "y"}},
        {"max_tokens": "<=9"},
        None,
    ]
    assert all(route["rewrite"] == {"force": {"temperature": 0}} for route in made)
    assert [route["when"]["header"] for route in routes("several")] == [
        {"x-portkey-config": "pc-one"},
        {"x-portkey-config": "pc-two"},
    ]


@pytest.mark.parametrize("text", ["{}", "[]", '{"data": 3}', '{"strategy": 4}', '{"targets": []}', '{"targets": [1]}'])
def test_a_file_without_targets_ends_with_a_message(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    result = CliRunner().invoke(app, ["import", "portkey", str(file)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


LEAVES = st.sampled_from(
    [OPENAI, CLAUDE, {"provider": "@mistral-x"}, {"provider": "no-such"}, {"provider": "openai", "custom_host": "h"},
     {"provider": "bedrock", "aws_region": "us-east-1"}, {"provider": 3}, "text"]
)  # fmt: skip
SCALARS = st.sampled_from([0, 1, -1, 3, 0.5, "a", None, True, [429, "x"], {"a": 1}])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {"targets": st.lists(inner, max_size=3)},
        optional={
            "strategy": st.fixed_dictionaries(
                {},
                optional={
                    "mode": st.sampled_from(["fallback", "loadbalance", "single", "conditional", "odd"]),
                    "on_status_codes": SCALARS,
                    "conditions": SCALARS,
                },
            )
            | SCALARS,
            **dict.fromkeys(("retry", "request_timeout", "cache", "override_params", "weight", "name"), SCALARS),
        },
    ),
    max_leaves=6,
)


@given(TREES)
@settings(max_examples=60)
def test_any_config_passes_the_check_or_ends_with_a_message(data: Any) -> None:
    try:
        draft, left = convert(parse_text(json.dumps(data), "config.json"), "*")
    except ConfigError:
        return
    if draft.models:
        draft.text()  # raises unless it passes
    else:
        assert left or not data.get("targets")

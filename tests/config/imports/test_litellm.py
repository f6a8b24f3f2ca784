"""Configurations of LiteLLM become configurations that pass the check, and no value of them is lost silently."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from config.document import parse, parse_text
from config.imports.draft import Blueprint, ImportFailed
from config.imports.litellm.conversion import convert
from config.loader import load
from config.problem import ConfigError, Problem
from gateway.process.commands import app

FILES = sorted((Path(__file__).parent / "litellm").glob("*.yaml"))
USEFUL = [file for file in FILES if file.stem != "empty"]


def imported(text: str) -> tuple[dict[str, Any], list[Problem], str]:
    """The result as data, what is left, and the result's text."""
    draft, left = convert(parse_text(text, "config.yaml"))
    written = draft.text()
    return json.loads(json.dumps(parse_text(written, "headrace.yaml").data)), left, written


def one(**params: Any) -> dict[str, Any]:
    return {"model_name": "m", "litellm_params": params}


def of(*models: dict[str, Any], **sections: Any) -> tuple[dict[str, Any], list[Problem], str]:
    return imported(yaml.safe_dump({"model_list": list(models), **sections}))


@pytest.mark.parametrize("file", USEFUL, ids=lambda file: file.stem)
def test_a_result_passes_the_check(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, left = convert(parse(file))
    written = tmp_path / "headrace.yaml"
    written.write_text(draft.text())
    for name, example in draft.variables.items():
        monkeypatch.setenv(name, example)
    load(written)
    checked = CliRunner().invoke(app, ["check", str(written)])
    assert checked.exit_code == 0, checked.output
    report = "\n".join(map(str, left))
    for secret in ("written-here", "sk-1234", "sk-lf", "abcdef"):
        assert secret not in draft.text()
        assert secret not in report


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in entries:
        yield from leaves(inner, (*place, step))
    if not isinstance(value, dict | list) and value is not None:
        yield place


def changes(data: Any, place: tuple[Any, ...]) -> Iterator[Any]:
    """The data without a value, and with another one."""
    for way in ("remove", "replace"):
        changed = inner = copy.deepcopy(data)
        for step in place[:-1]:
            inner = inner[step]
        value = inner.pop(place[-1])
        if way == "replace":
            other = not value if isinstance(value, bool) else value + 7 if isinstance(value, int | float) else "other"
            inner.update({place[-1]: other}) if isinstance(inner, dict) else inner.insert(place[-1], other)
        yield changed


def outcome(data: Any) -> tuple[str, list[str]]:
    try:
        draft, left = convert(parse_text(yaml.safe_dump(data), "config.yaml"))
        return draft._written(), [problem.message for problem in left]
    except (ConfigError, ImportFailed) as error:
        return str(error), []


@pytest.mark.parametrize("file", USEFUL, ids=lambda file: file.stem)
def test_every_value_changes_the_result_or_is_reported(file: Path) -> None:
    data = yaml.safe_load(file.read_text())
    _, left = convert(parse_text(yaml.safe_dump(data), "config.yaml"))
    reported = {problem.path for problem in left}
    before = outcome(data)
    for place in leaves(data):
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
        above = any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in reported)
        if not above:
            assert any(outcome(changed) != before for changed in changes(data, place)), path


def test_deployments_of_one_name_share_a_pool_or_a_split() -> None:
    made, left, _ = imported((Path(__file__).parent / "litellm/balanced.yaml").read_text())
    qwen = next(pool for pool in made["pools"] if pool["name"] == "qwen")
    assert [endpoint["weight"] for endpoint in qwen["endpoints"]] == [3, 1]
    assert (qwen["balance"], qwen["breaker"]) == ({"by": "least_request"}, {"failures": 2, "open_for": "30s"})
    route = made["models"][0]["routes"][0]
    assert route["fallback"] == [
        {"pool": "together_ai-Qwen/Qwen3-32B", "on": ["capacity", "backend", "transport", "context_length"]}
    ]
    assert route["timeout"] == {"first_byte": "5s", "whole": "45s"}
    assert route["retry"] == {"attempts": 3, "backoff": "2s"}
    assert [problem.path for problem in left] == ["router_settings.retry_after"]


def test_a_wildcard_strips_the_name_of_the_provider() -> None:
    made, left, _ = imported((Path(__file__).parent / "litellm/wildcards.yaml").read_text())
    models = {model["name"]: model for model in made["models"]}
    assert models["openai/*"]["routes"][0]["rewrite"] == {"strip": "openai/"}
    assert "rewrite" not in models["gpt-*"]["routes"][0]
    small = next(pool for pool in made["pools"] if pool.get("model") == "claude-haiku-4-5")
    assert small["name"] in models["openai/*"]["routes"][0]["fallback"]
    assert list(models)[-1] != "openai/*" or len(models) == 1  # the order of the file decides between wildcards
    assert {problem.path for problem in left} >= {"model_list[3]", "model_list[5]"}


def test_orders_come_before_fallbacks_and_aliases_follow_models() -> None:
    made, _, _ = imported((Path(__file__).parent / "litellm/fallbacks.yaml").read_text())
    primary = made["models"][0]
    assert primary["aliases"] == ["gpt-4"]
    names = [entry if isinstance(entry, str) else entry["pool"] for entry in primary["routes"][0]["fallback"]]
    assert names[:3] == ["mistral-mistral-medium-latest", "deepseek-deepseek-chat", "gemini-gemini-2.5-pro"]
    assert primary["routes"][0]["retry"] == {"attempts": 1}
    assert primary["routes"][0]["timeout"]["total"] == "900s"


def test_inline_secrets_become_variables_of_their_own() -> None:
    made, _, text = of(
        one(model="openai/a", api_key="sk-one"),
        one(model="openai/b", api_key="sk-two"),
        {"model_name": "n", "litellm_params": {"model": "openai/c", "api_key": "sk-one"}},
    )
    keys = {pool["model"]: pool["key"] for pool in made["pools"]} if "key" in made["pools"][0] else {}
    if keys:
        assert keys["a"] == keys["c"] != keys["b"]
    assert "sk-" not in text
    assert text.count("Set OPENAI_API_KEY") == 3


def test_no_secret_of_a_body_a_header_or_a_url_is_written() -> None:
    body = {
        "api_key": "s3cret-1",
        "nested": {"accessToken": "s3cret-2"},
        "thinking": {"budget_tokens": 9},
        "min_tokens": 3,
    }
    headers = {
        "X-Credential": "s3cret-3",
        "Ocp-Apim-Subscription-Key": "s3cret-4",
        "X-Other": "s3cret-5",
        "X-Title": "app",
    }
    model = one(model="openai/a", api_key="s3cret-6", extra_body=body, headers=headers, max_tokens=7)
    for url in ("redis://:s3cret-7@${HOST}:6379", "redis://u:s3cret-7@h:6379", "redis://h:6379/0?password=s3cret-7"):
        teams = [{"team_alias": "t", "rpm_limit": 10}]
        made, left, text = of(model, router_settings={"redis_url": url}, teams=teams)
        assert made["state"] == {"redis": "${REDIS_URL}"}
        assert "s3cret" not in text
        assert "s3cret" not in "\n".join(map(str, left))
        assert sum("may be a secret" in str(problem) for problem in left) == 2
        assert made["models"][0]["routes"][0]["rewrite"]["defaults"] == {
            "max_tokens": 7, "thinking": {"budget_tokens": 9}, "min_tokens": 3
        }  # fmt: skip
        assert {"name": "X-Title", "value": "app"} in made["pools"][0]["headers"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_list: []", "has no models"),
        ("pools: []", "has no models"),
        ("model_list: [{model_name: a, litellm_params: {model: sagemaker/x}}]", "no model of it can be imported"),
        ("model_list: [{model_name: a, model_name: b}]", "given twice"),
        ("- a", "expected fields such as"),
        ("model_list: [{model_name: a", "is not valid YAML"),
        ("model_list: [text, 3, {litellm_params: 4}, {model_name: x}]", "no model of it can be imported"),
    ],
)
def test_a_file_that_cannot_be_imported_ends_with_a_message(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["import", "litellm", str(file)])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_the_command_writes_the_result_and_the_report_apart(tmp_path: Path) -> None:
    output = tmp_path / "headrace.yaml"
    file = next(file for file in FILES if file.stem == "observed")
    result = CliRunner().invoke(app, ["import", "litellm", str(file), "--output", str(output)])
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"{file}:27: guardrails: has no equivalent" in result.stderr
    assert output.read_text().startswith("# Imported from LiteLLM's observed.yaml.\n")
    nowhere = CliRunner().invoke(app, ["import", "litellm", str(file), "--output", str(tmp_path / "no/such.yaml")])
    assert nowhere.exit_code == 2
    assert "No such file" in nowhere.stderr


# ── any configuration of real shapes ──────────────────────────────────────────────────────────────────

NAMES = st.sampled_from(["gpt-4o", "claude", "fast", "openai/*", "*", "gpt-*", "bad name", "x" * 140, "a/b:c"])
PROVIDERS = st.sampled_from(
    ["openai", "azure", "anthropic", "bedrock", "vertex_ai", "gemini", "mistral", "groq", "ollama", "hosted_vllm",
     "together_ai", "sagemaker", "perplexity", "azure_ai", "databricks", "litellm_proxy"]
)  # fmt: skip
MODELS = st.builds(
    "{}/{}".format, PROVIDERS, st.sampled_from(["m", "*", "gpt-*", "org/model", "claude-x", "converse/y"])
)
TEXTS = st.sampled_from(["os.environ/A_KEY", "os.environ/B-KEY", "sk-1", "", "text", "${HOME_KEY}", 7, None, True])
URLS = st.sampled_from(
    [
        "http://h:1/v1",
        "https://r.openai.azure.com/",
        "os.environ/BASE",
        "ftp://x",
        "http://h:99999",
        "h",
        "http://h/a/b",
        "",
    ]
)
NUMBERS = st.one_of(
    st.integers(-2, 10**7), st.floats(-1, 1e6), st.sampled_from(["1e-06", "os.environ/N", "abc", None, True])
)
VALUES = st.recursive(
    NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)
PARAMS = st.fixed_dictionaries(
    {"model": MODELS | st.sampled_from(["*", "gpt-4o", "claude-3", "plain", "", 3])},
    optional={
        **dict.fromkeys(("api_key", "api_version", "organization", "aws_region_name", "vertex_project"), TEXTS),
        **dict.fromkeys(("vertex_location", "vertex_credentials", "tenant_id", "client_id", "client_secret"), TEXTS),
        "api_base": URLS,
        **dict.fromkeys(("rpm", "tpm", "weight", "order", "timeout", "stream_timeout", "max_retries"), NUMBERS),
        **dict.fromkeys(("temperature", "max_tokens", "stop", "tools", "extra_body", "extra_headers", "tags"), VALUES),
        **dict.fromkeys(("input_cost_per_token", "output_cost_per_token", "max_parallel_requests"), NUMBERS),
        "drop_params": st.sampled_from([True, False, "True", "maybe"]),
        "additional_drop_params": VALUES,
    },
)
DEPLOYMENTS = st.fixed_dictionaries(
    {"model_name": NAMES, "litellm_params": PARAMS},
    optional={"model_info": st.fixed_dictionaries({}, optional={"mode": TEXTS | st.just("rerank"), "id": TEXTS})},
)
TARGETS = st.lists(st.dictionaries(NAMES, st.lists(NAMES, max_size=3) | NAMES, max_size=2), max_size=3) | VALUES
ROUTER = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"), TARGETS),
        "default_fallbacks": st.lists(NAMES, max_size=2),
        "routing_strategy": st.sampled_from(["simple-shuffle", "least-busy", "cost-based-routing", 4]),
        "model_group_alias": st.dictionaries(NAMES, NAMES | st.fixed_dictionaries({"model": NAMES}), max_size=2)
        | VALUES,
        **dict.fromkeys(("num_retries", "retry_after", "allowed_fails", "cooldown_time", "timeout"), NUMBERS),
        **dict.fromkeys(("redis_host", "redis_password", "redis_url"), TEXTS),
        "redis_port": NUMBERS | TEXTS,
    },
)
MODULE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("num_retries", "request_timeout", "allowed_fails", "max_budget"), NUMBERS),
        **dict.fromkeys(("fallbacks", "context_window_fallbacks"), TARGETS),
        "budget_duration": st.sampled_from(["30d", "1d", "7d", 3]),
        "cache": st.booleans(),
        "cache_params": st.fixed_dictionaries({}, optional={"type": TEXTS | st.just("local"), "ttl": NUMBERS}) | VALUES,
        "drop_params": st.booleans(),
        "callbacks": VALUES | st.just(["prometheus", "langfuse"]),
        "unheard_of": VALUES,
    },
)
GENERAL = st.dictionaries(
    st.sampled_from(["master_key", "database_url", "max_parallel_requests", "health_check_interval", "alerting",
                     "max_request_size_mb", "max_response_size_mb", "completion_model", "other"]),
    VALUES, max_size=4,
)  # fmt: skip
TEAM = st.fixed_dictionaries(
    {},
    optional={
        "team_alias": NAMES,
        "budget_duration": st.just("30d"),
        **dict.fromkeys(("max_budget", "rpm_limit", "max_parallel_requests"), NUMBERS),
    },
)
TEAMS = st.lists(TEAM | VALUES, max_size=3)
CONFIGS = st.fixed_dictionaries(
    {"model_list": st.lists(DEPLOYMENTS, min_size=1, max_size=5)},
    optional={
        "router_settings": ROUTER | VALUES,
        "litellm_settings": MODULE,
        "general_settings": GENERAL,
        "teams": TEAMS,
    },
)


@given(CONFIGS)
@settings(max_examples=60)
def test_any_configuration_passes_the_check_or_ends_with_a_message(data: dict[str, Any]) -> None:
    environment = dict(os.environ)
    try:
        draft, left = convert(parse_text(yaml.safe_dump(data), "config.yaml"))
    except ConfigError as error:
        raise AssertionError(error) from None  # no file of this form is refused
    assert isinstance(draft, Blueprint)
    if not draft.models:
        assert left
        return
    draft.text()  # raises unless it passes
    assert dict(os.environ) == environment

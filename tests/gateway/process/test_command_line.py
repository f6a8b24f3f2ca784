import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters import native
from gateway.process.commands import app

run = CliRunner().invoke


def test_check_prints_every_error_and_exits_1(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "version: 1\n"
        "pools:\n  - {name: a, endpoints: [http://127.0.0.1:9], connect_timeout: 5}\n"
        "models:\n  - {name: chat, routes: [{too: a}]}\n"
        "tenants:\n  - {name: acme, models: [chta]}\n"
    )
    result = run(app, ["check", str(path)])
    assert result.exit_code == 1
    for expected in ("wrong.yaml:3", "10s", "wrong.yaml:5", '"to"', "wrong.yaml:7", '"chat"'):
        assert expected in result.output, result.output


WARNED = """\
version: 1
pools:
  - {name: a, endpoints: [http://127.0.0.1:9]}
  - {name: b, endpoints: [http://127.0.0.1:9]}
models:
  - name: chat
    routes:
      - when: {stream: true}
        to: a
      - else: true
        split: {sticky: user, arms: [{pool: a, weight: 1}, {name: new, pool: a, weight: 3}]}
        rewrite: {caps: {max_tokens: 100}, drop: [logprobs]}
        timeout: {total: 5s}
tenants:
  - {name: acme, models: [chat], limits: {requests: 600/min}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(WARNED)
    return path


def test_warnings_are_printed_and_fail_only_with_the_option(policy: Path) -> None:
    lenient, strict = run(app, ["check", str(policy)]), run(app, ["check", "--strict", str(policy)])
    warning = f"{policy}:4: warning: pools[1].name: no route leads here\n"
    assert (lenient.exit_code, lenient.output) == (0, f"{warning}{policy}: ok, 1 warning\n")
    assert (strict.exit_code, strict.output) == (1, warning)


BUDGETS = """\
version: 1
pools: [{name: a, endpoints: [http://127.0.0.1:9]}]
models:
  - {name: chat, price: {request: 1 usd}, routes: [{to: a}], limits: {requests: 9/day, tokens: 9/h, concurrency: 3}}
tenants:
  - name: acme
    models: [chat]
    limits:
      - {spend: 5 usd/month, requests: 3/s}
      - {spend: 1 usd/hour, per: key}
    teams: [{name: ads, limits: [{tokens: 9/month}]}]
"""


@pytest.mark.parametrize(
    ("sections", "advice"),
    [
        ("", "usage: {}"),
        ("usage: {}", "state: {database: ...}"),
        ("usage: {}\nstate: {database: sqlite:////var/lib/headrace.db}", None),
    ],
)
def test_strict_names_each_limit_that_a_restart_or_a_second_gateway_forgets(
    tmp_path: Path, sections: str, advice: str | None
) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(f"{BUDGETS}{sections}\n")
    assert run(app, ["check", str(path)]).exit_code == 0
    result = run(app, ["check", "--strict", str(path)])
    lines = result.output.splitlines()
    if advice is None:
        assert (result.exit_code, lines) == (0, [f"{path}: ok"])
        return
    places = ("4: warning: models[0].limits.requests", "9: warning: tenants[0].limits[0].spend",
              "11: warning: tenants[0].teams[0].limits[0].tokens")  # fmt: skip
    assert result.exit_code == len(lines) - len(places) + 1 == 1
    for line, place in zip(lines, places, strict=True):
        assert line.startswith(f"{path}:{place}: "), line
        assert advice in line


def test_check_runs_the_tests_beside_a_file_or_those_it_is_given(policy: Path) -> None:
    other = policy.parent / "other.yaml"
    other.write_text("tests: [{request: {tenant: acme, model: chat, stream: true}, expect: {pool: a}}]\n")
    assert "1 test passed" in run(app, ["check", str(policy), "--tests", str(other)]).output
    beside = policy.parent / "policy.tests.yaml"
    beside.write_text("tests:\n  - {request: {tenant: acme, model: chat, stream: true}, expect: {pool: b}}\n")
    failed = run(app, ["check", str(policy)])
    assert failed.exit_code == 1
    assert f"{beside}:2: acme requests chat: expected pool b, got a\n" in failed.output
    assert "routes[0], line 8: yes: stream true (is true)" in failed.output
    beside.write_text("tests:\n  - {}\n")
    assert f"{beside}:2: tests[0].request: is required" in run(app, ["check", str(policy)]).output
    missing = run(app, ["check", str(policy), "--tests", str(policy.parent / "nowhere.yaml")])
    assert (missing.exit_code, "cannot be read" in missing.output) == (1, True)


def test_check_reports_a_key_that_can_never_be_used(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(WARNED.replace("models: [chat],", f"models: [chat], keys: [{{id: abc, hash: {'a' * 64}}}],"))
    result = run(app, ["check", str(path)])
    assert result.exit_code == 1
    assert "tenant acme, key abc" in result.output


def explain(path: Path, *options: str) -> tuple[int, str]:
    result = run(app, ["explain", "--config", str(path), "--tenant", "acme", "--model", "chat", *options])
    return result.exit_code, result.output


def test_explain_prints_the_decision(policy: Path) -> None:
    status, text = explain(policy, "--user", "ann", "--max-tokens", "500", "--at", "2026-03-02T10:30")
    assert status == 0
    lines = text.splitlines()
    assert lines[:3] == [
        'acme requests "chat": chat',
        "  routes[0], line 8: no: stream true (is false)",
        "  routes[1], line 10: yes: takes everything",
    ]
    assert lines[3] in ("goes to a, arm a (25% of such requests)", "goes to a, arm new (75% of such requests)")
    assert "  sends max_tokens: 100" in lines
    assert "  limit per tenant: requests 600/min" in lines
    assert "  timeout: first_byte 5m, idle 2m, total 5s" in lines
    _, drawn = explain(policy)
    assert "selected for each request, at random or by a key of the request:" in drawn


def test_explain_as_json(policy: Path) -> None:
    status, text = explain(policy, "--stream", "--header", "x-a=b", "--label", "team=x", "--role", "operator", "--json")
    explanation = json.loads(text)
    assert status == 0
    assert explanation["to"] == {"pool": "a", "share": 1.0}
    assert explanation["routes"] == [
        {
            "route": 0,
            "matches": True,
            "line": 8,
            "checks": [{"field": "stream", "required": "true", "seen": "true", "holds": True}],
        }
    ]


def test_explain_of_a_refused_or_wrong_request(policy: Path) -> None:
    assert explain(policy, "--model", "chta") == (
        1,
        'acme requests "chta": no model\n'
        'refused (model_not_found): no model has the name "chta" (did you mean "chat"?)\n',
    )
    for options, expected in (
        (("--at", "noon"), "at: expected a moment"),
        (("--header", "x"), "--header: expected NAME=VALUE, got 'x'"),
        (("--front", "chatt"), 'did you mean "chat"?'),
        (("--config", str(policy.parent / "nowhere.yaml")), "cannot be read"),
    ):
        status, text = explain(policy, *options)
        assert status == 2, text
        assert expected in text


def test_check_prints_ok(tmp_path: Path) -> None:
    assert run(app, ["check", "config/headrace.yaml"]).exit_code == 0


def test_check_of_a_file_that_is_not_there() -> None:
    result = run(app, ["check", "nowhere.yaml"])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_schema_is_json_schema() -> None:
    schema = json.loads(run(app, ["schema"]).output)
    assert schema["properties"]["pools"]["type"] == "array"


def test_every_command_has_help() -> None:
    for arguments in ([], ["serve"], ["check"], ["explain"], ["schema"], ["keys"], ["keys", "create"]):
        result = run(app, [*arguments, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.output


@pytest.mark.processes
def test_the_runtimes_have_help_and_pass_on_theirs() -> None:
    assert "tensor" in run(app, ["runtime", "--help"]).output
    command = [sys.executable, "-m", "gateway", "runtime", "tensor", "--help"]  # its process becomes the runtime
    assert "--repository" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_version_is_that_of_the_distribution() -> None:
    result = run(app, ["--version"])
    assert result.exit_code == 0
    core = "with the native core" if native.AVAILABLE else "in Python alone"
    assert result.output == f"headrace {version('headrace')}, {core}\n"
    assert run(app, []).exit_code == 2, "no command is a mistake"

"""Tests of policies: those of the examples, and the messages of failing tests."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from config.cases import load_cases
from config.loader import ConfigError, load
from gateway.features.explain import cases
from gateway.features.explain.why import Policy
from gateway.process.commands import app
from tests.config.conftest import RIGHT
from tests.support.examples import examples

run = CliRunner().invoke
POLICY = RIGHT.replace(
    "      - to: vllm\n",
    "      - when: {stream: true}\n        name: streams\n"
    "        split: {sticky: user, arms: [{pool: vllm, weight: 3}, {pool: spare, weight: 1}]}\n"
    "      - to: vllm\n        rewrite: {caps: {max_tokens: 9}}\n",
)


def test_every_example_has_tests_that_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = examples(tmp_path, monkeypatch)
    for path in folder.glob("*.yaml"):
        if not path.stem.endswith(".tests"):
            result = run(app, ["check", "--strict", str(path)])
            assert result.exit_code == 0, result.output
            assert "passed" in result.output


def failures(tmp_path: Path, *tests: str) -> list[str]:
    """The mismatch of each failed test, after its line and name."""
    policy, file = tmp_path / "policy.yaml", tmp_path / "tests.yaml"
    policy.write_text(POLICY)
    file.write_text("tests:\n" + "".join(f"  - {{{test}}}\n" for test in tests))
    mismatches = cases.run(Policy.of(load(policy)), load_cases(file))
    return [str(failure).splitlines()[0].removeprefix(f"{tmp_path}/") for failure in mismatches]


REQUEST = "request: {tenant: acme, model: chat}"


@pytest.mark.parametrize(
    ("expect", "wrong"),
    [
        ("{route: 1, pool: vllm, pools: [vllm, spare]}", None),
        ("{route: 0}", "expected route 0, got 1"),
        ("{pool: spare}", "expected pool spare, got vllm"),
        ("{pools: [vllm]}", "expected pools vllm, got vllm, spare"),
        ("{pool: spare, route: 5}", "expected route 5, got 1; expected pool spare, got vllm"),
        ("{arm: a}", "expected arm a, got nothing"),
        ("{arms: {a: 100%}}", "expected arms a 100%, got none"),
        ("{sent: {max_tokens: 9}}", None),
        ("{sent: {max_tokens: 8}}", "expected sent.max_tokens 8, got 9"),
        ("{sent: {model: chat, tools: null}}", None),
        ("{sent: {tools: []}}", "expected sent.tools [], got nothing"),
        ("{refused: model_not_found}", "expected refused model_not_found, got no"),
    ],
)
def test_expectations_of_a_test(tmp_path: Path, expect: str, wrong: str | None) -> None:
    expected = [] if wrong is None else [f"tests.yaml:2: acme requests chat: {wrong}"]
    assert failures(tmp_path, f"{REQUEST}, expect: {expect}") == expected


def test_a_split_is_expected_by_its_shares_or_by_a_users_arm(tmp_path: Path) -> None:
    stream = "request: {tenant: acme, model: chat, stream: true"
    assert failures(
        tmp_path,
        f"{stream}}}, expect: {{route: streams, arms: {{vllm: 75%, spare: 25%}}}}",
        f"{stream}}}, expect: {{arms: {{vllm: 80%, spare: 20%}}}}",
        f"{stream}}}, expect: {{pool: vllm}}",
        f"{stream}, user: ann}}, expect: {{arm: nobody}}, name: of ann",
    ) == [
        "tests.yaml:3: acme requests chat: expected arms vllm 80%, spare 20%, got vllm 75%, spare 25%",
        "tests.yaml:4: acme requests chat: the split selects an arm at random for each request: expect "
        "`arms`, or give the request the split's key",
        "tests.yaml:5: of ann: expected arm nobody, got vllm",
    ]


def test_a_case_without_a_time_runs_on_a_monday_at_noon(tmp_path: Path) -> None:
    when = "when: {time: {between: 12:00-12:01, days: [mon]}}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(RIGHT.replace("to: vllm", f"to: vllm\n        {when}"))
    (tmp_path / "policy.tests.yaml").write_text(
        f"tests:\n  - {{{REQUEST}, expect: {{pool: vllm}}}}\n"
        "  - {request: {tenant: acme, model: chat, at: '2026-01-05T13:00+02:00'}, expect: {refused: model_not_found}}\n"
    )
    result = run(app, ["check", str(policy)])
    assert (result.exit_code, result.output) == (0, f"{policy}: ok, 2 tests passed\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tests: []", "1: tests: needs 1 or more entries"),
        ("tests:\n  - {request: {tenant: a, model: m}, expect: {}}", "2: tests[0].expect: expects nothing: give route"),
        (
            "tests:\n  - {request: {tenant: a, model: m}, expect: {pool: a, refused: x}}",
            "2: tests[0].expect: a request that is refused goes nowhere: give refused alone",
        ),
        (
            "tests:\n  - request: {tenant: a, model: m,\n      prompt_token: 5}\n    expect: {pool: a}",
            '3: tests[0].request.prompt_token: unknown field (did you mean "prompt_tokens"?)',
        ),
        (
            "tests:\n  - {request: {tenant: a, model: m}, expect: {arms: {a: 5}}}",
            "2: tests[0].expect.arms.a: expected a ",
        ),
        (
            "tests:\n  - {request: {tenant: a, model: m, at: noon}, expect: {pool: a}}",
            "2: tests[0].request.at: expected ",
        ),
    ],
)
def test_a_mistake_in_a_test_has_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tests.yaml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_cases(path)
    assert str(caught.value).startswith(f"{path}:{problem}")

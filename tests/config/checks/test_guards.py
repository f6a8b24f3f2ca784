"""Guards of the file: unknown fields and names, unusable patterns, files of words, guards without a use."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from config.extras import extras_of
from config.loader import load, read
from config.schema.config import WordsGuardConfig
from gateway.process.commands import app
from tests.support.gateways import config

FILE = """\
version: 1
pools:
  - {{name: main, protocol: openai, endpoints: ["http://127.0.0.1:9/v1"]}}
guards:
  - {guard}
models:
  - {{name: chat, guards: [{model}], routes: [{{to: main, guards: [{route}]}}]}}
tenants:
  - {{name: acme, models: ["*"], guards: [{tenant}]}}
"""


def problems(tmp_path: Path, guard: str, model: str = "g", route: str = "", tenant: str = "") -> list[str]:
    path = tmp_path / "headrace.yaml"
    path.write_text(FILE.format(guard=guard, model=model, route=route, tenant=tenant))
    reading = read(path)
    return [str(each).removeprefix(f"{path}:") for each in (*reading.problems, *reading.warnings)]


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        ("{name: g, kind: words, words: [a], patterns: [b]}", "5: guards[0].patterns: unknown field"),
        ("{name: g, kind: wrods, words: [a]}", "5: guards[0].kind"),
        ("{name: g, kind: words}", "5: guards[0].kind: finds nothing: give `words` or `file`"),
        ("{name: g, kind: urls}", "5: guards[0].kind: finds nothing: give `allow` or `deny`"),
        ("{name: g, kind: urls, deny: ['https://a.example/']}", "5: guards[0].deny[0]: expected a host"),
        ("{name: g, kind: pattern, patterns: ['a+']}", "5: guards[0].patterns[0]: has no longest match"),
        ("{name: g, kind: pattern, patterns: ['(']}", "5: guards[0].patterns[0]: is no pattern of RE2"),
        ("{name: g, kind: pattern, patterns: ['a?']}", "5: guards[0].patterns[0]: matches the empty text"),
        ("{name: g, kind: words, file: absent.txt}", "5: guards[0].file: "),
        ("{name: g, kind: secrets, action: replace}", "5: guards[0].action: `replace` needs `text`"),
        ("{name: g, kind: secrets, text: no}", "5: guards[0].text: belongs to the action `replace`"),
        ("{name: g, kind: secrets, action: route, on: [prompt]}", "5: guards[0].action: `route` needs `to`"),
        ("{name: g, kind: secrets, action: route, to: chat}", "5: guards[0].action: only a prompt can be sent"),
        (
            "{name: g, kind: secrets, action: route, to: chta, on: [prompt]}",
            '5: guards[0].to: no model is named "chta"',
        ),
        (
            "{name: g, kind: personal, recogniser: {model: chta}}",
            '5: guards[0].recogniser.model: no model is named "chta"',
        ),
        ("{name: g, kind: personal, recogniser: {}}", "5: guards[0].recogniser.model"),
        ("{name: g, kind: personal, recogniser: {model: chat}, restore: false}", "5: guards[0].recogniser: needs"),
        ("{name: g, kind: personal, recogniser: {model: chat}, action: warn}", "5: guards[0].recogniser: needs"),
        ("{name: g, kind: personal, recogniser: {model: chat}, on: [answer]}", "5: guards[0].recogniser: needs"),
        (
            "{name: g, kind: personal, recogniser: {model: chat, entities: [person]}}",
            "5: guards[0].recogniser.entities[0]: ",
        ),
        ("{name: g, kind: model, model: chta, prompt: x}", '5: guards[0].model: no model is named "chta"'),
        ("{name: g, kind: model, model: chat}", "5: guards[0].kind: finds nothing: give `match_if`"),
        ("{name: g, kind: model, model: chat, prompt: x, action: mask}", "5: guards[0].action: a verdict has no place"),
        ("{name: g, kind: model, model: chat, prompt: x, window: 9, overlap: 9}", "5: guards[0].overlap: is less than"),
        ("{name: g, kind: model, model: chat, match_if: 'text =='}", "5: guards[0].match_if"),
        ("{name: g, kind: model, model: chat, prompt: x, threshold: 0.5}", "5: guards[0].threshold: belongs to"),
        ("{name: g, kind: model, model: chat, prompt: x, classes: [a]}", "5: guards[0].classes: belongs to `labels`"),
        (
            "{name: g, kind: injection, model: chat, labels: [a, b], classes: [a]}",
            "5: guards[0].classes: does not have the label `b`",
        ),
        (
            "{name: g, kind: model, model: chat, match_if: 'text == \"x\"', thinking_tokens: 9}",
            "5: guards[0].thinking_tokens: belongs to `prompt`",
        ),
        (
            "{name: g, kind: injection, model: chat, labels: [a], thinking_tokens: 9}",
            "5: guards[0].thinking_tokens: has no effect beside `labels`",
        ),
        ("{name: g, kind: model, model: chat, labels: [a], prompt: x}", "5: guards[0].prompt: has no effect"),
        ("{name: g, kind: model, model: chat, prompt: x, timeout: 0s}", "5: guards[0].timeout"),
        ("{name: g, kind: topics, embed: chat}", "5: guards[0].kind: finds nothing: give `allow` or `deny`"),
        ("{name: g, kind: topics, embed: chta, deny: [{name: a, examples: [b]}]}", "5: guards[0].embed: no model is"),
        ("{name: g, kind: language}", "5: guards[0].kind: finds nothing: give `allow` or `deny`"),
        ("{name: g, kind: language, allow: [English]}", "5: guards[0].allow[0]: expected two letters"),
        ("{name: g, kind: schema, json_schema: {type: objct}}", "5: guards[0].json_schema: is no JSON Schema"),
        ("{name: g, kind: schema, json_schema: {}, on: [prompt]}", "5: guards[0].on: a schema is that of answers"),
        ("{name: g, kind: webhook, model: chat}", "5: guards[0].kind: needs `secret`"),
        ("{name: g, kind: webhook, model: chat, service: lakera, severity: 3}", "5: guards[0].severity: belongs to"),
        (
            "{name: g, kind: webhook, model: chat, service: bedrock-guardrail, resource: a}",
            "5: guards[0].service: needs",
        ),
        ("{name: g, kind: webhook, model: chat, service: lakera, resource: a}", "5: guards[0].resource: belongs to"),
        ("{name: g, kind: secrets, action: erase}", "5: guards[0].action"),
        ("{name: g, kind: secrets, on: [title]}", "5: guards[0].on[0]"),
    ],
)
def test_mistakes_have_their_line(tmp_path: Path, guard: str, problem: str) -> None:
    (written,) = problems(tmp_path, guard)
    assert written.startswith(problem)


def test_unknown_and_unused_names_have_their_line(tmp_path: Path) -> None:
    guard = "{name: g, kind: secrets}"
    assert problems(tmp_path, guard, tenant="gg") == [
        '9: tenants[0].guards[0]: no guard is named "gg" (did you mean "g"?)'
    ]
    assert problems(tmp_path, guard, route="gg")[0].startswith("7: models[0].routes[0].guards[0]: no guard is named")
    (warning,) = problems(tmp_path, guard, model="")
    assert warning.startswith("5: warning: guards[0].name: ")
    assert "no tenant, model or route applies this guard" in warning


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"# none\n\n", "has no words"), (b"\xff", "is not UTF-8 text"), (b"a" * 300, "300 characters")],
)
def test_a_file_of_words_is_read_with_the_configuration(tmp_path: Path, content: bytes, problem: str) -> None:
    words = tmp_path / "words.txt"
    words.write_bytes(content)
    (written,) = problems(tmp_path, "{name: g, kind: words, file: words.txt}")
    assert problem in written
    words.write_text("# a comment\nblue bird\n")
    assert problems(tmp_path, "{name: g, kind: words, file: words.txt}") == []
    (guard,) = load(tmp_path / "headrace.yaml").guards
    assert isinstance(guard, WordsGuardConfig)
    assert guard.file == str(words)


def test_guards_need_their_extra() -> None:
    assert "guards" not in extras_of(config())
    assert "guards" in extras_of(config(guards=[{"name": "g", "kind": "secrets"}]))


def test_an_explanation_lists_the_guards_that_a_request_meets(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    second = "{name: h, kind: secrets, mode: monitor, action: mask}"
    guards = "{name: g, kind: secrets, exempt: {roles: [operator]}}\n  - " + second
    path.write_text(FILE.format(guard=guards, model="g", route="h", tenant="g"))
    arguments = ["explain", "--tenant", "acme", "--model", "chat", "--config", str(path)]
    assert "  guards: g (block), h (mask, monitor)\n" in CliRunner().invoke(app, arguments).output
    assert "  guards: h (mask, monitor)\n" in CliRunner().invoke(app, [*arguments, "--role", "operator"]).output


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{pattern: '(?=a)'}", "json_schema.pattern: is no pattern of RE2"),
        ("{properties: {a: {items: {pattern: '(a)\\1'}}}}", "json_schema.properties.a.items.pattern: is no pattern"),
        ("{anyOf: [{type: string}, {patternProperties: {'(?!a)': {}}}]}", "is no pattern of RE2"),
        ("{else: {$defs: {x: {pattern: '(?<=a)'}}}}", "json_schema.else.$defs.x.pattern: is no pattern of RE2"),
        ("{$schema: 'http://json-schema.org/draft-07/schema#'}", "json_schema.$schema: is another draft than 2020-12"),
        ("{type: strnig}", "json_schema: is no JSON Schema"),
    ],
)
def test_a_schema_without_a_bound_is_a_problem_with_its_line(tmp_path: Path, schema: str, problem: str) -> None:
    (first, *_) = problems(tmp_path, f"{{name: g, kind: schema, json_schema: {schema}}}")
    assert first.startswith("5: guards[0].json_schema")
    assert problem in first


@pytest.mark.parametrize(
    "schema",
    [
        "{pattern: '^\\pL+$'}",
        "{properties: {pattern: {const: {pattern: '(?=a)'}}, const: {pattern: a}}}",
        "{$schema: 'https://json-schema.org/draft/2020-12/schema', enum: [{pattern: '(?=a)'}]}",
    ],
)
def test_a_schema_with_patterns_of_re2_loads(tmp_path: Path, schema: str) -> None:
    assert problems(tmp_path, f"{{name: g, kind: schema, json_schema: {schema}}}") == []

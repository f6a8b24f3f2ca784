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

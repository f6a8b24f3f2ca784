"""The help of both runtimes' command lines."""

from collections.abc import Callable

import pytest

from runtimes.llm.__main__ import main as llm
from runtimes.tensor.__main__ import main as tensor

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("main", [llm, tensor])
def test_help_shows_defaults_of_values_only(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 30" in text
    for nothing in ("None", "True", "False", "[]", ")"):
        assert f"(default: {nothing}" not in text


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ('{"kind": "draft"}', "of kind ngram or draft_model, not draft"),
        ('{"kind": "draft_model"}', "needs a model"),
        ('{"kind": "draft_model", "model": 5}', "needs a model"),
        ('{"kind": "draft_model", "model": "m", "weights": "int3"}', "not int3"),
        ('{"kind": "ngram", "tokens": 0}', "1 to 32 tokens, not 0"),
        ('{"kind": "ngram", "tokens": true}', "1 to 32 tokens, not True"),
        ('{"tokens": 8}', "kind is missing"),
        ('{"kind": "ngram", "model": "m"}', "of kind ngram has no model"),
        ('{"kind": "ngram", "k": 5}', "k is none of kind, tokens, model, weights"),
        ("[]", "no object"),
        ("ngram", "invalid"),
    ],
)
def test_a_wrong_speculation_is_refused(value: str, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    with pytest.raises(SystemExit, match="2"):
        llm(["--model", "m", "--port", "0", "--speculation", value])
    assert wrong in capsys.readouterr().err

"""The questions with known answers, and their grading."""

import json
from typing import Any

import pytest

from loadtests.cascade_quality import Quality, ReferenceAnswer, measure, questions, table
from tests.loadtests.answering import answering

pytestmark = pytest.mark.plain


def test_the_questions_are_distinct_and_do_not_contain_their_answers() -> None:
    listed = questions()
    assert len(listed) == 100
    assert len({each.question for each in listed}) == 100
    assert [each.question for each in listed if not each.answers or each.is_correct(each.question)] == []


def test_an_answer_is_a_whole_word_in_any_case() -> None:
    seven = ReferenceAnswer("?", ("seven", "7"))
    assert seven.is_correct("There are Seven days.")
    assert seven.is_correct("7")
    assert not seven.is_correct("seventeen, 17, 70")


def echo(_: str, body: bytes) -> tuple[int, Any]:
    """Answers a chat with its own question."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return 200, {"choices": [{"message": json.loads(body)["messages"][0]}], "usage": usage}


def test_a_model_is_measured_over_http() -> None:
    listed = [ReferenceAnswer("is it blue?", ("blue",)), ReferenceAnswer("is it red?", ("green",))]
    with answering(echo) as port:
        result = measure(f"http://127.0.0.1:{port}", "key", "small", listed, {"max_tokens": 2})
    assert result == Quality("small", 2, 1, 6, 4, result.median_seconds)
    assert "| `small` | 1 of 2 | 6 | 4 |" in table([result])

"""Bad words do not appear: by the rule, by its naive form, and in answers of the real engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.sampling_params import BadWords, spelled
from tests.runtimes.llm.babbler import Babbler
from tests.runtimes.llm.server_fixtures import MODEL, post, serving, until_idle
from tests.support.byte_tokenizer import byte_tokenizer

ids = st.integers(0, 3)


@given(
    words=st.lists(st.lists(ids, min_size=1, max_size=4), max_size=8),
    prompt=st.lists(ids, min_size=1, max_size=4),
    answer=st.lists(ids, max_size=8),
)
def test_only_the_last_token_of_a_word_is_banned(words: list[list[int]], prompt: list[int], answer: list[int]) -> None:
    expected = {last for last in range(4) for word in words if [*answer, last][-len(word) :] == word}
    assert BadWords(words).banned(prompt + answer, len(prompt)) == expected


def test_a_word_is_banned_at_the_start_of_a_text_and_within_one() -> None:
    vocabulary = {"cat": [1], " cat": [2], "do": [3], " do": [4, 5], "a b": [6, 7], " a b": [8, 7]}
    words = spelled(["cat", "do", "a b"], vocabulary.__getitem__)
    assert words.banned([9], 1) == {1, 2, 3}
    assert words.banned([9, 6], 1) == words.banned([9, 8], 1) == {1, 2, 3, 7}
    assert words.banned([9, 4], 1) == {1, 2, 3}, "as in vLLM, another spelling of another length is not banned"


@pytest.mark.parametrize("seed", range(3))
async def test_no_answer_has_a_bad_word(seed: int) -> None:
    words = ["0", "é", *[f"{i}{j}" for i in range(1, 6) for j in range(10)], '":', "}]"]
    async with serving(runner=Babbler(seed), max_queue=64) as running:
        body = {"model": MODEL, "prompt": "a", "n": 20, "max_tokens": 60, "ignore_eos": True, "bad_words": words}
        body["logit_bias"] = {"256": -100, "257": -100}  # no text, and between two tokens of a word another sequence
        status, _, answer = await post(running, "/v1/completions", body)
        assert status == 200, answer
        texts = [choice["text"] for choice in answer["choices"]]
        assert not [word for word in words for text in texts if word in text]
        assert any("1" in text for text in texts)
        await until_idle(running.engine)


@pytest.mark.processes
async def test_words_that_leave_nothing_end_their_own_request_only() -> None:
    async with serving(runner=Babbler(1)) as running:
        body: dict[str, Any] = {"model": MODEL, "prompt": "a", "bad_words": ["a"], "guided_choice": ["a"]}
        status, _, answer = await post(running, "/v1/completions", body)
        assert (status, answer["error"]["param"]) == (400, "bad_words")
        assert (await post(running, "/v1/completions", body | {"guided_choice": ["b"]}))[0] == 200


def test_words_are_plain_text() -> None:
    tokenizer = byte_tokenizer()
    assert 257 not in spelled(["<|im_end|>"], tokenizer.encode).banned(tokenizer.encode("<|im_end|"), 0)

"""vLLM's fields of chats and completions, through the real engine: what vLLM's clients send works here."""

import asyncio
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.api.requests import ascii_classes
from runtimes.llm.engine.model_runner import ModelRunner
from runtimes.llm.grammar.build import build
from tests.runtimes.llm.babbler import Babbler
from tests.runtimes.llm.server_fixtures import HI, MODEL, TEXT, post, serving
from tests.support.byte_tokenizer import READS, byte_tokenizer
from tests.support.speaker import PROMPT, SPEAKER, Speaker

COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 4}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("guided", "pattern"),
    [
        ({"guided_regex": "a+b"}, "a+b"),
        ({"guided_choice": ["ab", "ba"]}, "ab|ba"),
        ({"guided_json": {"type": "integer"}}, r"-?\d+"),
        ({"guided_json": '{"type": "null"}'}, "null"),
        ({"guided_grammar": 'start: "x" "y"'}, "xy"),
        ({"guided_json": {"type": "array", "maxItems": 0}, "guided_whitespace_pattern": "_+"}, r"\[_+\]|\[\]"),
    ],
)
async def test_the_guided_names_hold_answers_to_their_form(guided: dict[str, Any], pattern: str) -> None:
    async with serving(runner=Babbler(1)) as running:
        body = COMPLETION | guided | {"guided_decoding_backend": "xgrammar", "n": 6, "max_tokens": 60, "temperature": 1}
        status, _, answer = await post(running, "/v1/completions", body)
        assert status == 200, answer
        texts = [choice["text"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
        assert texts
        assert all(re.fullmatch(pattern, text) for text in texts), texts


@pytest.mark.processes
async def test_an_error_names_the_guided_field() -> None:
    async with serving(runner=Babbler(1)) as running:
        status, _, answer = await post(running, "/v1/completions", COMPLETION | {"guided_regex": "("})
        assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, "guided_regex", "invalid_grammar")


@pytest.mark.processes
async def test_a_free_integer_of_an_answer_is_as_the_model_writes_it() -> None:
    schema = {"type": "integer", "minimum": 10**16}
    async with serving(runner=Babbler(3)) as running:
        body = {"model": MODEL, "prompt": "a", "n": 20, "max_tokens": 60, "guided_json": schema}
        (_, _, answer), (status, _, refused) = await asyncio.gather(
            post(running, "/v1/completions", body),
            post(running, "/v1/completions", body | {"guided_json": {"const": 2**53 + 1}}),
        )
        texts = [choice["text"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
        assert texts
        assert all(str(json.loads(text)) == text.strip() for text in texts)
        assert (status, refused["error"]["param"]) == (400, "guided_json")


@pytest.mark.processes
async def test_an_answer_is_one_of_5000_options() -> None:
    options = [f"option {i}, chosen of many" for i in range(5000)]
    async with serving(runner=Babbler(1)) as running:
        body = COMPLETION | {"structured_outputs": {"choice": options}, "n": 8, "max_tokens": 60, "temperature": 1}
        status, _, answer = await post(running, "/v1/completions", body)
        assert status == 200, answer
        assert {choice["text"] for choice in answer["choices"]} <= set(options)


@given(
    st.sampled_from(["\\d", "\\w", "\\s", "\\D", "\\W", "\\S"]),
    st.sampled_from(["{}", "[{}]", "[^{}]"]),
    st.characters(exclude_categories=["Cs"]),
)
def test_classes_of_a_regex_are_ascii(escape: str, form: str, character: str) -> None:
    matcher = build(READS, "regex", ascii_classes(form.format(escape)))
    text = character.encode()
    allowed = matcher.validate_tokens([*text, 256]) == len(text) + 1
    expected = re.fullmatch(form.format(escape), character, re.ASCII) is not None
    assert allowed == expected


@pytest.mark.parametrize("regex", [r"\\d", r"\.\d\\", r"[\]\d]", "a", "", r"\p{L}\x41"])
def test_other_escapes_of_a_regex_stay(regex: str) -> None:
    assert ascii_classes(regex) == re.sub(r"(?<!\\)\\d", "[0-9]", regex)


@pytest.mark.processes
async def test_no_digit_but_ascii_follows_a_regex() -> None:
    async with serving(runner=Babbler(1)) as running:
        body = COMPLETION | {"structured_outputs": {"regex": r"\d{4}"}, "n": 20, "temperature": 2, "max_tokens": 60}
        _, _, answer = await post(running, "/v1/completions", body)
        assert all(re.fullmatch("[0-9]{4}", choice["text"]) for choice in answer["choices"])


@pytest.mark.parametrize(("skip", "text"), [(None, "ab"), (True, "ab"), (False, "a<|im_start|>b")])
async def test_control_tokens_are_in_the_text_where_they_are_not_skipped(skip: bool | None, text: str) -> None:
    async with serving() as running:
        (a, b), start = byte_tokenizer().encode("ab"), 256
        running.parrot.script[:] = [a, start, b]
        chat = {"messages": HI, "skip_special_tokens": skip}
        _, _, answer = await post(running, "/v1/chat/completions", chat)
        assert answer["choices"][0]["message"]["content"] == text
        _, _, answer = await post(running, "/v1/completions", {"prompt": "x", "skip_special_tokens": skip})
        assert answer["choices"][0]["text"] == text


def check_scores(scores: list[Any], prompt: list[int], count: int) -> None:
    names = byte_tokenizer()
    assert scores[0] is None
    assert len(scores) == len(prompt)
    for place, (token, entries) in enumerate(zip(prompt[1:], scores[1:], strict=True), 1):
        row = SPEAKER.row(place).log_softmax(-1)
        assert set(entries) == {str(token), *map(str, SPEAKER.likeliest(place, count))}
        for other, entry in entries.items():
            assert math.isclose(entry["logprob"], float(row[int(other)]), abs_tol=1e-5)
            assert entry["rank"] == int((row > row[int(other)]).sum()) + 1
            assert entry["decoded_token"] == names.decode([int(other)]) or "\\x" in entry["decoded_token"]


@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("count", [0, 3])
async def test_prompt_logprobs_are_those_of_the_model(max_tokens: int, count: int) -> None:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=len(PROMPT)))) as running:
        body = COMPLETION | {"prompt_logprobs": count, "max_tokens": max_tokens, "n": 2, "prompt": ["abc", "xyz"]}
        status, _, answer = await post(running, "/v1/completions", body)
        assert status == 200, answer
        for choice, prompt in zip(answer["choices"], ["abc", "abc", "xyz", "xyz"], strict=True):
            check_scores(choice["prompt_logprobs"], byte_tokenizer().encode(prompt), count)
            assert choice["text"] == TEXT[:max_tokens]
        assert answer["usage"]["completion_tokens"] == 4 * max_tokens


async def test_prompt_logprobs_of_a_chat_stand_beside_its_choices() -> None:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=1000))) as running:
        body = {"messages": HI, "prompt_logprobs": 2, "max_tokens": 1}
        (_, _, answer), (_, _, tokenized) = await asyncio.gather(
            post(running, "/v1/chat/completions", body), post(running, "/tokenize", {"messages": HI})
        )
        scores = answer["prompt_logprobs"]
        assert len(scores) == len(tokenized["tokens"]) == answer["usage"]["prompt_tokens"]
        assert all(str(token) in one for token, one in zip(tokenized["tokens"][1:], scores[1:], strict=True))


async def test_an_echo_and_prompt_logprobs_have_their_own_counts() -> None:
    async with serving(runner=ModelRunner(Speaker(TEXT, after=len(PROMPT)))) as running:
        body = COMPLETION | {"prompt_logprobs": 4, "echo": True, "logprobs": 1, "max_tokens": 0}
        _, _, answer = await post(running, "/v1/completions", body)
        (choice,) = answer["choices"]
        check_scores(choice["prompt_logprobs"], byte_tokenizer().encode(PROMPT), 4)
        assert choice["text"] == PROMPT
        assert choice["logprobs"]["top_logprobs"][0] is None
        assert all(1 <= len(top) <= 2 for top in choice["logprobs"]["top_logprobs"][1:])


async def test_a_stream_has_no_prompt_logprobs() -> None:
    async with serving() as running:
        status, _, answer = await post(running, "/v1/completions", COMPLETION | {"prompt_logprobs": 1, "stream": True})
        assert (status, answer["error"]["param"]) == (400, "prompt_logprobs")


@pytest.mark.parametrize(
    ("change", "param"), [({"n": 9}, "n"), ({"best_of": 9}, "best_of"), ({"prompt": ["a"] * 9}, "prompt")]
)
async def test_more_answers_than_may_ever_wait_are_refused_with_the_bound(change: dict[str, Any], param: str) -> None:
    async with serving("hi", max_queue=8) as running:
        status, headers, answer = await post(running, "/v1/completions", COMPLETION | change)
        assert (status, answer["error"]["param"]) == (400, param)
        assert "8 places" in answer["error"]["message"]
        assert "retry-after" not in headers
        assert (await post(running, "/v1/completions", COMPLETION | {"n": 8}))[0] == 200


@pytest.mark.parametrize("model", [{}, {"model": None}])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HI}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/responses", {"input": "a"}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [65]}),
    ],
)
async def test_the_only_model_answers_a_request_without_model(path: str, body: Any, model: dict[str, Any]) -> None:
    async with serving("hi") as running:
        status, _, answer = await post(running, path, body | model)
        assert status == 200, answer
        assert answer.get("model", MODEL) == MODEL
        assert (await post(running, path, body | {"model": ""}))[0] == 404

"""Fields of the clients of llama.cpp, Ollama, LM Studio, TGI and vLLM: obeyed or listed, never a refused chat."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from runtimes.llm.api.client_fields import HINTS
from runtimes.llm.api.messages import MAX_DEPTH, closed
from runtimes.llm.api.request_decoding import decode_chat, decode_completion
from runtimes.llm.engine.model_runner import ModelRunner
from runtimes.llm.engine.sampler import sample
from runtimes.llm.sequence import Sampled, StepBatch
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.generation_config import SamplingDefaults
from tests.runtimes.llm.server_fixtures import CONTEXT, HI, post, serving
from tests.support.byte_tokenizer import CHATML
from tests.support.speaker import Speaker
from tests.support.tokenizer_folders import LAYOUTS, write_tokenizer
from tests.support.tool_calls import CHAT

SCHEMA = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}


def decoded(**fields: Any) -> tuple[Any, list[str]]:
    hints = IgnoredFields()
    return decode_chat(json.dumps({"messages": HI, **fields}).encode(), hints), sorted(hints.ignored)


@pytest.mark.parametrize("value", [1, "x", {}])
def test_hints_for_other_servers_are_listed(value: Any) -> None:
    for name in HINTS:
        assert decoded(**{name: value})[1] == [name]
        assert decoded(**{name: None})[1] == []
        with pytest.raises(CallerError, match="strict"):
            decode_completion(json.dumps({"prompt": "x", name: value}).encode(), IgnoredFields(strict=True))


@pytest.mark.parametrize(
    ("fields", "expected", "ignored"),
    [
        ({"repeat_penalty": 1.3, "top_k": 4, "min_p": 0.1}, {"repetition_penalty": 1.3, "top_k": 4, "min_p": 0.1}, []),
        ({"n_predict": 7}, {"max_tokens": 7}, []),
        ({"n_predict": 7, "max_tokens": 3}, {"max_tokens": 3}, []),
        ({"n_predict": -1}, {"max_tokens": None}, []),
        ({"max_tokens": -1}, {"max_tokens": None}, []),
        ({"max_completion_tokens": -1, "max_tokens": 4}, {"max_tokens": 4}, []),
        ({"max_new_tokens": 5, "random_seed": 3}, {"max_tokens": 5, "seed": 3}, []),
        ({"options": {"num_ctx": 4096, "temperature": 0.1, "num_predict": 9}}, {"temperature": 0.1, "max_tokens": 9},
         ["num_ctx"]),
        ({"options": {"temperature": 0.1}, "temperature": 0.7}, {"temperature": 0.7}, []),
        ({"options": {"temperature": 0.1}, "temperature": None}, {"temperature": 0.1}, []),
        ({"options": {"num_predict": 9}, "max_new_tokens": 5}, {"max_tokens": 5}, []),
        ({"options": None, "max_tokens": None, "n_predict": 5}, {"max_tokens": 5}, []),
        ({"max_new_tokens": 3, "num_predict": 2, "n_predict": 1}, {"max_tokens": 1}, []),
        ({"max_new_tokens": 3, "num_predict": 2, "n_predict": None}, {"max_tokens": 2}, []),
        ({"think": False}, {"enable_thinking": False}, []),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}, []),
        ({"reasoning": {"enabled": False}}, {"enable_thinking": False}, []),
        ({"reasoning": {"max_tokens": 100, "exclude": True, "summary": "auto"}},
         {"thinking_token_budget": 100, "include_reasoning": False}, ["reasoning.summary"]),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": None}, {"reasoning_effort": "low"}, []),
        ({"grammar": 'root ::= "a"'}, {"guided_grammar": 'root ::= "a"'}, []),
        ({"json_schema": SCHEMA}, {"guided_json": SCHEMA}, []),
        ({"keep_alive": "5m", "cache_prompt": True}, {}, ["cache_prompt", "keep_alive"]),
    ],
)  # fmt: skip
def test_other_servers_names_mean_the_same(fields: Any, expected: dict[str, Any], ignored: list[str]) -> None:
    body, listed = decoded(**fields)
    assert {name: getattr(body, name) for name in expected} == expected
    assert listed == ignored


@pytest.mark.parametrize("value", [5, "x", [], False])
def test_options_that_are_no_object_are_refused(value: Any) -> None:
    with pytest.raises(CallerError) as refused:
        decoded(options=value)
    assert refused.value.param == "options"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"response_format": {"type": "json", "value": SCHEMA}},
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        {"format": SCHEMA},
    ],
)
def test_a_schema_may_be_given_in_any_form(fields: Any) -> None:
    body, _ = decoded(**fields)
    grammar = body.grammar()
    assert grammar.kind == "json_schema"
    assert json.loads(grammar.text)["properties"] == SCHEMA["properties"]


def test_other_forms_of_an_answer() -> None:
    assert decoded(format="json")[0].grammar().kind == "json_schema"
    assert decoded(response_format={"type": "regex", "value": "a+"})[0].grammar().text == "a+"
    for wrong in ({"response_format": {"type": "regex"}}, {"format": "xml"}):
        with pytest.raises(CallerError):
            decoded(**wrong)


def test_fields_that_would_change_the_answer_stay_refused() -> None:
    for name in ("chat_template", "documents", "allowed_token_ids", "Temperature"):
        with pytest.raises(CallerError, match=name):
            decoded(**{name: ["x"]})


def test_fields_within_messages_and_tools_are_listed() -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [part]}, {"role": "assistant", "content": "b", "id": "m1"}]
    tool = CHAT["tools"][0] | {"cache_control": {"type": "ephemeral"}}
    body, ignored = decoded(messages=messages, tools=[tool])
    assert ignored == ["cache_control", "id"]
    assert body.messages[0].text == "a"
    with pytest.raises(CallerError, match="images"):
        decoded(messages=[{"role": "user", "content": "a", "images": ["x"]}])
    many = [{"type": "function", "function": {"name": f"f{i}_{'x' * 90}"}} for i in range(200)]
    assert len(decoded(tools=many)[0].tools) == 200


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text(max_size=4), values, min_size=1, max_size=4), data=st.data(), ascii=st.booleans())
def test_the_arguments_of_a_cut_call_are_those_that_are_whole(value: Any, data: st.DataObject, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    begun = text[: data.draw(st.integers(1, len(text)))]
    left = msgspec.json.decode(closed(begun).encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    for name, value_left in left.items():
        assert name in value
        if not isinstance(value_left, dict | list):
            assert value_left == value[name]
    assert json.loads(closed(text)) == value


def test_arguments_that_are_nested_too_deep_are_not_closed() -> None:
    for opens, closes in ("[", "]"), ('{"a":', "}"):
        deepest = opens * MAX_DEPTH
        assert closed(deepest) == deepest.removesuffix('"a":') + closes * MAX_DEPTH
        assert closed(deepest + opens) == deepest + opens
    assert (million := "[" * 1_000_000) == closed(million)


async def test_a_history_with_a_cut_call_goes_on() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": "cut'}}
    turns = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}, *HI]
    async with serving() as running:
        status, _, answer = await post(running, "/v1/chat/completions", {"messages": turns})
        assert status == 200, answer
        for arguments in ("no object", '{"a": ' + "[" * 100_000):
            call["function"]["arguments"] = arguments  # type: ignore[index]
            assert (await post(running, "/v1/chat/completions", {"messages": turns}))[0] == 400


@pytest.mark.parametrize("change", [{"echo": True, "logprobs": 1}, {"prompt_logprobs": 1}, {}])
@pytest.mark.parametrize("more", [0, 1])
async def test_a_prompt_as_long_as_the_context_is_scored(change: dict[str, Any], more: int) -> None:
    prompt = "abc" + "x" * (CONTEXT - 3 + more)
    async with serving(runner=ModelRunner(Speaker("", after=CONTEXT))) as running:
        status, _, answer = await post(running, "/v1/completions", {"prompt": prompt, "max_tokens": 0, **change})
        assert status == (200 if not more else 400), answer
        if not more and "echo" in change:
            assert len(answer["choices"][0]["logprobs"]["tokens"]) == CONTEXT
        if not more:
            assert answer["usage"]["completion_tokens"] == 0
        status, _, _ = await post(running, "/v1/completions", {"prompt": prompt, "max_tokens": 1, **change})
        assert status == 400


class Chance:
    """A model of `size` tokens whose logits are chance."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._chance = torch.Generator().manual_seed(1)

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        chunks = [chunk for chunk in batch.chunks if chunk.samples]
        if not chunks:
            return {}
        logits = torch.randn((len(chunks), self._size), generator=self._chance)
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sample(logits, chunks), strict=True)}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {name: load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), name)) for name in LAYOUTS}


@pytest.mark.processes
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_structured_answers_and_calls_with_every_tokenizer(tokenizers: dict[str, Tokenizer], layout: str) -> None:
    tokenizer = tokenizers[layout]
    zones = {"type": "object", "properties": {"zone": {"enum": ["°C", "日本"]}}, "required": ["zone"]}
    tool = {"type": "function", "function": {"name": "now", "parameters": zones | {"additionalProperties": False}}}
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    runner = Chance(len(tokenizer.pieces))
    for template in (CHATML, "{# [TOOL_CALLS] #}" + CHATML):
        async with serving(runner=runner, tokenizer=tokenizer, template=template, context=2048) as running:
            chat = {"messages": HI, "n": 4, "max_tokens": 200}
            _, _, answer = await post(running, "/v1/chat/completions", chat | {"response_format": schema})
            for choice in answer["choices"]:
                assert json.loads(choice["message"]["content"])["x"] in (1, 2)
            forced = chat | {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
            _, _, answer = await post(running, "/v1/chat/completions", forced)
            for choice in answer["choices"]:
                (call,) = choice["message"]["tool_calls"]
                assert json.loads(call["function"]["arguments"])["zone"] in ("°C", "日本")
            status, _, answer = await post(running, "/v1/chat/completions", chat | {"tools": [tool], "max_tokens": 40})
            assert status == 200, answer
            choices = {"guided_choice": ["positive", "negative"], "prompt": "x", "max_tokens": 40}
            _, _, answer = await post(running, "/v1/completions", choices)
            assert answer["choices"][0]["text"] in ("positive", "negative")


async def test_the_models_sampling_applies_to_requests_without_these_fields(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte level"]
    async with serving(runner=Fixed(len(tokenizer.pieces)), tokenizer=tokenizer) as running:
        assert running.app.model is not None
        running.app.model = replace(running.app.model, sampling=SamplingDefaults(top_k=1))
        body = {"prompt": "x", "n": 6, "max_tokens": 8, "return_token_ids": True}
        _, _, answer = await post(running, "/v1/completions", body)
        assert len({tuple(choice["token_ids"]) for choice in answer["choices"]}) == 1
        _, _, answer = await post(running, "/v1/completions", body | {"top_k": 0})
        assert len({tuple(choice["token_ids"]) for choice in answer["choices"]}) > 1


class Fixed(Chance):
    """The logits of a position are the same for all answers."""

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        chunks = [chunk for chunk in batch.chunks if chunk.samples]
        rows = [torch.randn(self._size, generator=torch.Generator().manual_seed(chunk.end)) for chunk in chunks]
        if not rows:
            return {}
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sample(torch.stack(rows), chunks), strict=True)}

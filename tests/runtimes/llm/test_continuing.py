"""An answer that is carried on is the answer that it would have been."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.llm.model.llama import Llama
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.server_fixtures import HI, MODEL, Parrot, Running, post, serving, until_idle
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.cases import cases
from tests.support.llm_engines import answers, make_engine

TEXT = "Hello, wörld! 😀 and so on"
CALLED = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(TEXT) as running:
        running.parrot.continues = True
        yield running


class StreamedAnswer:
    """A stream's text and tokens, event by event, and how it ended."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        choices = [event["choices"][0] for event in events if event["choices"]]
        pieces = [(c["delta"].get("content") if "delta" in c else c["text"]) or "" for c in choices]
        self.pieces = [(text, c["token_ids"]) for text, c in zip(pieces, choices, strict=True) if "token_ids" in c]
        self.text = "".join(pieces)
        self.reason = choices[-1]["finish_reason"]
        self.usage: Any = next((event["usage"] for event in events if event.get("usage")), None)


async def answer_of(running: Running, **fields: Any) -> StreamedAnswer:
    path = "/v1/completions" if "prompt" in fields else "/v1/chat/completions"
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0, **fields}
    async with aiohttp.ClientSession() as session, session.post(running.url + path, json=body) as response:
        events = (await response.read()).split(b"\n\n")
    assert response.status == 200, events
    return StreamedAnswer([json.loads(event.removeprefix(b"data: ")) for event in events if b"{" in event])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"messages": HI}, TEXT),
        ({"prompt": "abc", "max_tokens": 100}, TEXT),
        ({"prompt": "abc"}, TEXT.encode()[:16].decode(errors="replace")),
        ({"messages": HI, "max_tokens": 9}, "Hello, w\ufffd"),  # in the middle of a character
        ({"messages": HI, "stop": ["wörld? ", "😀 and"]}, "Hello, wörld! "),
        ({"messages": HI, "stop": "d!"}, "Hello, wörl"),
    ],
)
async def test_from_every_token_on_it_is_the_same_stream(running: Running, fields: dict[str, Any], text: str) -> None:
    """Text, end and usage, wherever the first stream is cut: in a character, or in what may be a stop string."""
    whole = await answer_of(running, **fields, return_token_ids=True)
    assert whole.text == text
    for cut in range(len(whole.pieces)):  # the last piece is the end, after which nothing is left to continue
        prefix = [token_id for _, token_ids in whole.pieces[:cut] for token_id in token_ids]
        rest = await answer_of(running, **fields, continue_token_ids=prefix)
        assert "".join(text for text, _ in whole.pieces[:cut]) + rest.text == whole.text
        assert rest.reason == whole.reason
        # The only difference is the number of cached tokens.
        assert rest.usage | {"prompt_tokens_details": whole.usage["prompt_tokens_details"]} == whole.usage
        assert not rest.pieces  # the request does not include token ids
    await until_idle(running.engine)


CONTROL = 256


@pytest.mark.parametrize(
    ("path", "tools"),
    [("/v1/chat/completions", False), ("/v1/chat/completions", True), ("/v1/completions", False)],
)
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_all_tokens_of_an_answer_are_returned_whatever_their_text(
    path: str, tools: bool, data: st.DataObject
) -> None:
    """Also half a character, control tokens, and what may begin a stop text, whole and in a stream."""
    token_ids = st.sampled_from([*range(256), CONTROL, CONTROL, 257])
    script = data.draw(st.lists(token_ids, min_size=1, max_size=12))
    length = data.draw(st.integers(1, len(script)))
    fields_of_path: dict[str, Any] = {"messages": HI} if "chat" in path else {"prompt": "hi"}
    if tools:
        fields_of_path["tools"] = [{"type": "function", "function": {"name": "f"}}]
    fields: dict[str, Any] = {"max_tokens": length, "ignore_eos": True, "stop": ["z" * 20], "n": 2}
    if tools:
        fields.pop("ignore_eos")
        length = script.index(257) if 257 in script[:length] else length
    async with serving(runner=Parrot(script), context=1024) as running:
        body = {"model": MODEL, "return_token_ids": True, **fields_of_path, **fields}
        status, _, whole = await post(running, path, body)
        assert status == 200
        assert [choice["token_ids"] for choice in whole["choices"]] == [script[:length]] * 2
        streamed: dict[int, list[int]] = {0: [], 1: []}
        async with (
            aiohttp.ClientSession() as session,
            session.post(running.url + path, json=body | {"stream": True}) as response,
        ):
            for event in (await response.read()).split(b"\n\n"):
                for choice in json.loads(event[6:])["choices"] if b"{" in event else ():
                    streamed[choice["index"]] += choice.get("token_ids", [])
        assert streamed == {0: script[:length], 1: script[:length]}


async def test_an_answer_is_continued_from_its_text(running: Running) -> None:
    for cut in range(len(TEXT) + 1):
        messages = [*HI, {"role": "assistant", "content": TEXT[:cut]}]
        rest = await answer_of(running, messages=messages, continue_final_message=True, add_generation_prompt=False)
        assert TEXT[:cut] + rest.text == TEXT
    answer = await running.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}],
        extra_body={"continue_final_message": True},
    )
    assert answer.choices[0].message.content == TEXT[3:]


def test_a_begun_answer_is_placed_by_the_template() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.chat_template is not None
    template = ChatTemplate(tokenizer.chat_template, tokenizer)
    begun = [*HI, {"role": "assistant", "content": "  <|im_end|> x "}]
    assert template.encode(begun, begun=True) == template.encode(HI) + tokenizer.encode("  <|im_end|> x ")
    ended = template.encode(HI, answer=False)
    assert template.encode(HI)[: len(ended)] == ended
    assert len(template.encode(HI)) > len(ended)


def test_a_begun_answer_with_tools_may_be_the_only_message() -> None:
    """The prompt then has the system's message only, which describes the tools."""
    tokenizer = byte_tokenizer()
    assert tokenizer.chat_template is not None
    template = ChatTemplate(tokenizer.chat_template, tokenizer)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    text = tokenizer.decode(template.encode([{"role": "assistant", "content": "x"}], tools=tools, begun=True))
    assert text.startswith("system\nYou may call functions")
    assert '"name": "f"' in text
    assert text.endswith("assistant\nx")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *cases(__file__, "refused"),
        (
            {
                "messages": [*HI, {"role": "assistant", "content": "x"}],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            "continue_final_message",
        ),
        ({"continue_final_message": True, "messages": [*HI, CALLED], "add_generation_prompt": False}, "continue_final"),
    ],
    ids=str,
)
async def test_answers_that_cannot_be_continued_are_refused(
    running: Running, fields: dict[str, Any], param: str
) -> None:
    body = {"model": MODEL, "messages": HI, "stream": True, **fields}
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    body = {name: value for name, value in body.items() if value is not None}
    status, _, answer = await post(running, path, body)
    assert status == 400
    assert answer["error"]["param"].startswith(param)
    await until_idle(running.engine)


@pytest.fixture(scope="module")
def model(bundled_model: Path) -> Llama:
    return load_model(bundled_model, dtype="float32", device="cpu")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "how", [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95, "seed": 11}], ids=["greedy", "seeded"]
)
def test_the_model_continues_as_if_it_had_never_stopped(model: Llama, bundled_model: Path, how: dict[str, Any]) -> None:
    """From any of its tokens; and from its text too, if the encoded text gives the model's own tokens."""
    tokenizer = load_tokenizer(bundled_model)
    assert tokenizer.chat_template is not None
    template = ChatTemplate(tokenizer.chat_template, tokenizer)
    messages = [{"role": "user", "content": "Tell me about rivers, in two sentences."}]
    prompt = template.encode(messages)
    [whole] = answers(make_engine(model), [prompt], [24], **how)
    cuts = range(1, 24, 2)
    begun = [prompt + whole[:cut] for cut in cuts]
    rests = answers(make_engine(model, max_num_batched_tokens=1024), begun, [24 - cut for cut in cuts], **how)
    assert [whole[:cut] + rest for cut, rest in zip(cuts, rests, strict=True)] == [whole] * len(begun)
    for cut, ids in zip(cuts, begun, strict=True):
        begun_chat = [*messages, {"role": "assistant", "content": tokenizer.decode(whole[:cut])}]
        assert template.encode(begun_chat, begun=True) == ids

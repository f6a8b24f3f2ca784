"""Chats and completions before a real Triton, whose models have the inputs of TensorRT-LLM's and of vLLM's."""

import json
from typing import Any

import pytest

from adapters.base import Answer
from adapters.errors import BackendError, CallerError, ClientGone, Unsupported
from adapters.requests import GenerateRequest, ModelQuery
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from tests.adapters.http1.raw import until
from tests.servers.pool_adapters import adapting, within
from tests.servers.shared import shared, triton_of_texts
from tests.servers.triton import Triton
from tests.support.gateways import infer

ALL = ["llm_api", "bls", "vllm", "plain"]
STREAMING = ["llm_api", "bls", "vllm"]


@pytest.fixture(scope="module")
def server() -> Triton:
    return shared(triton_of_texts)


def before(server: Triton, **options: Any) -> Any:
    return adapting(f"http://{server.http}", {"name": "triton-generate", "chat_template": "chatml", **options})


def chat(model: str, text: str = "one two three", **fields: Any) -> GenerateRequest:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return openai.decode_chat(json.dumps(body).encode())


def completion(model: str, prompt: Any = "one two three", **fields: Any) -> GenerateRequest:
    return openai.decode_completion(json.dumps({"model": model, "prompt": prompt, **fields}).encode())


async def whole(server: Triton, request: GenerateRequest, **options: Any) -> dict[str, Any]:
    async with before(server, **options) as adapter:
        answer = await adapter.call(request, within())
        body: dict[str, Any] = json.loads(answer.body or b"")
        return body


async def chunks(answer: Answer) -> list[dict[str, Any]]:
    events = b"".join([piece async for piece in answer]).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    return [json.loads(sse.data_of(event)) for event in events[:-2]]


async def streamed(server: Triton, request: GenerateRequest, **options: Any) -> tuple[list[str], str, Answer]:
    """Texts, the reason and the answer."""
    async with before(server, **options) as adapter:
        answer = await adapter.call(request, within())
        choices = [choice for chunk in await chunks(answer) for choice in chunk["choices"]]
        contents = [choice["delta"].get("content") if "delta" in choice else choice["text"] for choice in choices]
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        return [text for text in contents if text], choices[-1]["finish_reason"], answer


@pytest.mark.parametrize("model", ALL)
async def test_whole_answers(server: Triton, model: str) -> None:
    """A completion has no prompt in it, also from a model that has no option to omit it."""
    text = " ".join(["word"] * 50)  # longer than the servers' own default of 16 or 32 tokens
    body = await whole(server, chat(model, text))
    choice = body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], body["model"]) == (text, "stop", model)
    (choice,) = (await whole(server, completion(model, max_tokens=2, temperature=0.5, seed=7)))["choices"]
    reason = "stop" if model == "bls" else "length"  # bls reports no counts
    assert (choice["text"], choice["finish_reason"]) == ("one two", reason)
    stopped = completion(model, "one two three four", max_tokens=9, stop=["three", "never"])
    (choice,) = (await whole(server, stopped))["choices"]
    assert (choice["text"].rstrip(), choice["finish_reason"]) == ("one two", "stop")


async def test_usage_of_a_model_that_reports_it(server: Triton) -> None:
    completion_body = await whole(server, completion("vllm", "one two three", max_tokens=2, temperature=0))
    assert completion_body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    _, _, answer = await streamed(server, completion("vllm", "one two three", max_tokens=2, stream=True))
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (3, 2, True)


@pytest.mark.parametrize("model", STREAMING)
async def test_streams(server: Triton, model: str) -> None:
    """Streams in pieces, from responses with the new text or with the whole text so far."""
    pieces, reason, answer = await streamed(server, chat(model, stream=True))
    assert (pieces, reason) == (["one", " two", " three"], "stop")
    assert answer.usage.completion_tokens == 3
    assert answer.error is None
    pieces, reason, _ = await streamed(server, completion(model, max_tokens=2, stream=True))
    assert (pieces, reason) == (["one", " two"], "length")
    request = completion(model, "one two three four", max_tokens=9, stop="three", stream=True)
    pieces, reason, _ = await streamed(server, request)
    assert ("".join(pieces).rstrip(), reason) == ("one two", "stop")


async def test_a_model_that_does_not_stream_answers_in_one_piece(server: Triton) -> None:
    pieces, reason, _ = await streamed(server, chat("plain", stream=True))
    assert (pieces, reason) == (["one two three"], "stop")


async def test_an_echo(server: Triton) -> None:
    completion_body = await whole(server, completion("vllm", "one two", echo=True))
    assert completion_body["choices"][0]["text"] == "one twoone two"
    pieces, _, _ = await streamed(server, completion("bls", "one two", echo=True, stream=True))
    assert pieces == ["one two", "one", " two"]


async def test_names_that_are_written(server: Triton) -> None:
    """Configured names resolve ambiguous models: a text of options, and the content of a stream's responses."""
    pieces, _, _ = await streamed(server, chat("llm_api", stream=True), streams="pieces")
    assert pieces == ["one", "one two", "one two three"]
    with pytest.raises(Unsupported, match="no input prompt"):
        await whole(server, chat("llm_api"), inputs={"prompt": "prompt"})
    with pytest.raises(Unsupported, match="no output text"):
        await whole(server, chat("llm_api"), output="text")


@pytest.mark.parametrize("model", STREAMING)
async def test_failures(server: Triton, model: str) -> None:
    async with before(server) as adapter:
        for stream in (False, True):
            with pytest.raises(BackendError) as caught:
                await adapter.call(chat(model, "FAIL now", stream=stream), within())
            assert "/opt" not in caught.value.message
        answer = await adapter.call(chat(model, "one " * 400 + "FAIL", stream=True), within())
        with pytest.raises(BackendError):
            await chunks(answer)
        assert isinstance(answer.error, BackendError)


async def test_a_client_may_leave(server: Triton) -> None:
    async with before(server) as adapter:
        answer = await adapter.call(chat("bls", "word " * 2000, stream=True, max_tokens=5000), within())
        await anext(answer)
        await answer.aclose()
        assert isinstance(answer.error, ClientGone)
        await until(lambda: answer.ended)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("llm_api", {"repetition_penalty": 2}),
        ("bls", {"presence_penalty": 1}),
        ("vllm", {"logprobs": True}),
        ("vllm", {"n": 2}),
    ],
)
async def test_fields_without_an_input_of_the_model_are_refused(
    server: Triton, model: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(Unsupported) as caught:
        await whole(server, chat(model, **fields))
    assert caught.value.param == next(iter(fields))


async def test_questions_go_to_the_server_as_they_are(server: Triton) -> None:
    async with before(server) as adapter:
        answer = await adapter.call(ModelQuery(model="bls", about="config"), within())
        assert json.loads(answer.body or b"")["max_batch_size"] == 4
        with pytest.raises(CallerError, match="generates text"):
            await adapter.call(infer(), within())

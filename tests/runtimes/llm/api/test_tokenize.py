"""`/tokenize` over a real socket: what it counts is what an answer is charged for."""

from typing import Any

import pytest

from tests.runtimes.llm.server_fixtures import CONTEXT, HI, MODEL, PROMPT_TOKENS, post, serving
from tests.support.cases import cases


async def test_a_chat_has_as_many_tokens_as_its_usage() -> None:
    async with serving() as running:
        status, _, body = await post(running, "/tokenize", {"model": MODEL, "messages": HI})
        assert (status, body["count"], body["max_model_len"]) == (200, PROMPT_TOKENS, CONTEXT)
        assert len(body["tokens"]) == PROMPT_TOKENS
        begun: list[Any] = [*HI, {"role": "assistant", "content": "yes"}]
        request = {"model": MODEL, "messages": begun, "continue_final_message": True, "add_generation_prompt": False}
        _, _, body = await post(running, "/tokenize", request)
        assert body["count"] == PROMPT_TOKENS + 3
        answer = await running.client.chat.completions.create(
            model=MODEL, messages=begun, max_tokens=1, extra_body={k: request[k] for k in list(request)[2:]}
        )
        assert answer.usage.prompt_tokens == body["count"]


async def test_a_prompt_has_its_own() -> None:
    async with serving() as running:
        _, _, body = await post(running, "/tokenize", {"model": MODEL, "prompt": "<|im_start|>abc"})
        assert body["tokens"][0] == 256
        assert body["count"] == 4


async def test_tokens_are_returned_as_strings_too() -> None:
    async with serving() as running:
        body = {"model": MODEL, "prompt": "<|im_start|>ö x", "return_token_strs": True}
        _, _, answer = await post(running, "/tokenize", body)
        assert answer["token_strs"] == ["<|im_start|>", "Ã", "¶", "Ġ", "x"]
        _, _, answer = await post(running, "/tokenize", {"model": MODEL, "prompt": "a", "add_special_tokens": False})
        assert (answer["count"], "token_strs" in answer) == (1, False)


async def test_tokens_are_a_text_again() -> None:
    async with serving() as running:
        text = "<|im_start|>user\nWörter 😀<|im_end|>"
        _, _, body = await post(running, "/tokenize", {"model": MODEL, "prompt": text})
        status, _, back = await post(running, "/detokenize", {"model": MODEL, "tokens": body["tokens"]})
        assert (status, back) == (200, {"prompt": text})
        assert (await post(running, "/detokenize", {"model": MODEL, "tokens": []}))[2] == {"prompt": ""}


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        *cases(__file__, "wrong tokens"),
        (b"[]", 400, "not valid"),
    ],
)
async def test_wrong_tokens_are_refused(body: Any, status: int, word: str) -> None:
    async with serving() as running:
        got, _, answer = await post(running, "/detokenize", body)
        assert got == status
        assert word in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        *cases(__file__, "wrong fields"),
        (b"{", 400, "not valid"),
        ({"model": MODEL, "messages": HI, "continue_final_message": True}, 400, "continue_final_message"),
        ({"model": MODEL, "prompt": "x" * 50_000}, 400, "tokens"),
    ],
)
async def test_wrong_fields_are_refused(body: Any, status: int, word: str) -> None:
    async with serving() as running:
        got, _, answer = await post(running, "/tokenize", body)
        assert got == status
        assert word in answer["error"]["message"]

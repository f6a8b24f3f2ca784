"""What official clients receive of a thinking model, thoughts and text apart: the same whole and streamed."""

from typing import Any

import anthropic
import openai
from anthropic.types import TextBlock, ThinkingBlock

from tests.support.doors import HI

MODEL = "parrot"
THOUGHT, ANSWER = "Well, wörld.", "Hi 😀"


async def chat(sdk: openai.AsyncOpenAI, **fields: Any) -> tuple[str, str]:
    whole: Any = (await sdk.chat.completions.create(model=MODEL, messages=HI, **fields)).choices[0].message
    thought, text = "", ""
    async for event in await sdk.chat.completions.create(model=MODEL, messages=HI, stream=True, **fields):
        for choice in event.choices:
            thought += _reasoning(choice.delta)
            text += choice.delta.content or ""
    assert (_reasoning(whole), whole.content) == (thought, text)
    return thought, text


def _reasoning(message: Any) -> str:
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


async def response(sdk: openai.AsyncOpenAI, **fields: Any) -> tuple[str, str]:
    whole = await sdk.responses.create(model=MODEL, input="hi", **fields)
    thought = "".join([part.text for item in whole.output if item.type == "reasoning" for part in item.content or ()])
    pieces = {"response.reasoning_text.delta": "", "response.output_text.delta": ""}
    async for event in await sdk.responses.create(model=MODEL, input="hi", stream=True, **fields):
        if event.type in pieces:
            pieces[event.type] += getattr(event, "delta", "")
    assert list(pieces.values()) == [thought, whole.output_text]
    return thought, whole.output_text


async def message(sdk: anthropic.AsyncAnthropic, **fields: Any) -> tuple[str, str]:
    request: Any = {"model": MODEL, "max_tokens": 100, "messages": HI, **fields}
    whole = await sdk.messages.create(**request)
    async with sdk.messages.stream(**request) as stream:
        final = await stream.get_final_message()
    assert [block.model_dump() for block in final.content] == [block.model_dump() for block in whole.content]
    thought = "".join([block.thinking for block in whole.content if isinstance(block, ThinkingBlock)])
    return thought, "".join([block.text for block in whole.content if isinstance(block, TextBlock)])

"""The marks of caches in a message, as places in the chat that it becomes."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from adapters.requests import Fields
from adapters.wire.anthropic import blocks
from adapters.wire.body import field
from adapters.wire.openai.known_fields import LeftOut
from adapters.wire.prompt_cache import BEFORE, ChatMark, ttl_of

Object = dict[str, Any]


class _Marked(msgspec.Struct):
    cache_control: Any = None


_several = msgspec.json.Decoder(str | list[_Marked] | None)
_any = msgspec.json.Decoder()


def of_fields(native: Fields, messages: int) -> Iterator[ChatMark]:
    """The marks in the tools, in the system prompt, and of the whole message. `messages`: those of the chat."""
    for name in ("tools", "system"):
        given = field(native, name, _several)
        for each in given if isinstance(given, list) else ():
            if (ttl := ttl_of(each.cache_control)) is not None:
                yield ChatMark(BEFORE, None, ttl)
    if "cache_control" in native and (ttl := ttl_of(field(native, "cache_control", _any))) is not None:
        yield ChatMark(messages - 1, None, ttl)


def of_blocks(content: Sequence[Any], messages: Sequence[Object], made: int) -> Iterator[ChatMark]:
    """The marks in the blocks of one message. `messages` are those of the chat so far, the last `made` ones of which
    the message has become: its results of tools, then the rest."""
    results, last = len(messages) - made, len(messages) - 1
    for number, block in enumerate(content):
        if isinstance(block, blocks.ToolResultBlock):
            results += 1
        if isinstance(block, LeftOut) or (ttl := ttl_of(block.cache_control)) is None or not messages:
            continue
        if isinstance(block, blocks.ToolResultBlock):
            yield ChatMark(min(results - 1, last), None, ttl)
        elif messages[last]["role"] == "user" and isinstance(parts := messages[last]["content"], list):
            yield ChatMark(last, max(len(parts) - _parts(content[number + 1 :]), 0), ttl)
        else:
            yield ChatMark(last, None, ttl)


def _parts(content: Sequence[Any]) -> int:
    """The parts of the user's blocks that a chat has in the user's message."""
    own = [block for block in content if not isinstance(block, blocks.ToolResultBlock)]
    return sum(part.get("text") != "" for part in blocks.parts_of(own))

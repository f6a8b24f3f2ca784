"""Exports a recording as a trace in Mooncake's format: arrivals, lengths and shared prefixes, without texts."""

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from gateway.features.recording.entries import Content
from gateway.features.replay.records import RecordedRequest

BLOCK = 512
"""Tokens of a block."""
BLOCK_BYTES = 4 * BLOCK
"""Bytes of a prompt that stand for a block, because a record has no tokens: about four bytes a token."""
_OPERATIONS = frozenset({"chat", "text_completion", "responses", "messages"})
_PROMPTS = ("system", "instructions", "tools", "messages", "prompt", "input")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def trace_of(requests: Iterator[RecordedRequest]) -> Iterator[dict[str, object]]:
    """The lines of the trace, in the order of arrivals. Raises `RecordError`.

    `hash_ids` are numbers of blocks: two requests have the same number if their prompts agree up to the block's end.
    """
    numbers: dict[bytes, int] = {}
    lines: list[tuple[int, int, int, tuple[int, ...]]] = []
    for entry, _, _, content in requests:
        if entry.operation not in _OPERATIONS:
            continue
        usage = entry.usage
        prompt = usage.prompt_tokens if usage is not None and usage.prompt_tokens else entry.prompt_tokens
        completion = 0 if usage is None else usage.completion_tokens
        digests = _chained(content, -(-prompt // BLOCK), entry.id.encode())
        blocks = tuple(numbers.setdefault(digest, len(numbers)) for digest in digests)
        lines.append((entry.arrival, prompt, completion, blocks))
    lines.sort()
    for arrival, prompt, completion, blocks in lines:
        yield {
            "timestamp": (arrival - lines[0][0]) // 1_000_000,
            "input_length": prompt,
            "output_length": completion,
            "hash_ids": blocks,
        }


def _chained(content: Content | None, count: int, unique: bytes) -> Iterator[bytes]:
    """A digest of the prompt up to the end of each block. Blocks beyond the text are the request's own."""
    text = b"" if content is None else _prompt(content)
    chained = blake2b(digest_size=12)
    for number in range(count):
        block = text[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
        chained.update(block if len(block) == BLOCK_BYTES else block + b"\0" + unique)
        yield chained.digest()


def _prompt(content: Content) -> bytes:
    """The parts of a body that a prompt consists of, in a fixed order."""
    try:
        fields = _fields(content.body)
    except msgspec.MsgspecError:
        return b""
    return b"\0".join(bytes(fields[name]) for name in _PROMPTS if name in fields)

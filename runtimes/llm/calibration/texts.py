"""The texts that a model is calibrated with: lines of JSON, or a plain text that is cut into pieces."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

FEWEST_TOKENS = 16
"""A shorter text is left out: its tokens have seen too little to be like those of an answer."""
FEWEST_IN_ALL = 256


def calibration_tokens(
    path: Path, encode: Callable[[str], Sequence[int]], *, count: int, length: int, seed: int
) -> list[list[int]]:
    """Up to `count` texts of FEWEST_TOKENS to `length` tokens each, drawn by `seed`; the same ones for the same seed.

    Of lines of JSON, a text is cut off at `length`. Raises ValueError for a file of no use, with the line at fault;
    OSError.
    """
    pieces = [encode(text)[:length] for text in _lines(path)] if path.suffix == ".jsonl" else _cut(path, encode, length)
    usable = [list(piece) for piece in pieces if len(piece) >= FEWEST_TOKENS]
    if not usable:
        raise ValueError(f"{path} has no text of {FEWEST_TOKENS} tokens or more")
    chosen = random.Random(seed).sample(usable, min(count, len(usable)))
    if (total := sum(map(len, chosen))) < FEWEST_IN_ALL:
        raise ValueError(f"the texts of {path} have {total} tokens, which are too few: give {FEWEST_IN_ALL} or more")
    return chosen


def _cut(path: Path, encode: Callable[[str], Sequence[int]], length: int) -> list[Sequence[int]]:
    tokens = encode(_decoded(path))
    return [tokens[first : first + length] for first in range(0, len(tokens), length)]


def _lines(path: Path) -> list[str]:
    texts = []
    for number, line in enumerate(_decoded(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"line {number} of {path} is not JSON") from None
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise ValueError(f'line {number} of {path} is neither a text nor an object with "text"')
        texts.append(text)
    return texts


def _decoded(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None

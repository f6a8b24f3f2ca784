"""The texts of the files beside this one.

A file has a section for each kind, whose head is `[kind]`. Each line is a text, with `⟦…⟧` around what is forbidden.
`{name}` is a made value of `values.py`: such a line makes several texts. `\\n` is a line feed.
"""

import random
import re
from pathlib import Path
from typing import NamedTuple

from tests.policies.guards.accuracy.values import MAKES

FOLDER = Path(__file__).parent
MADE = 50
"""Texts of a line with made values."""
_SLOT = re.compile(r"\{([a-z0-9-]+)\}")


class Sample(NamedTuple):
    """A text, the kind of its section, and the spans in it that are forbidden."""

    kind: str
    text: str
    spans: tuple[tuple[int, int], ...]


def samples_of(file: str) -> list[Sample]:
    """The texts of a file, in its order."""
    samples, kind, chance = list[Sample](), "", random.Random(file)
    for line in (FOLDER / f"{file}.txt").read_text().splitlines():
        if line.startswith("[") and line.endswith("]"):
            kind = line[1:-1]
        elif line.strip():
            times = MADE if _SLOT.search(line) else 1
            samples += [_sample(kind, line, chance) for _ in range(times)]
    return samples


def _sample(kind: str, line: str, chance: random.Random) -> Sample:
    line = _SLOT.sub(lambda match: MAKES[match[1]](chance), line.replace("\\n", "\n"))
    text, spans = "", list[tuple[int, int]]()
    for part in re.split(r"(⟦[^⟧]*⟧)", line):
        value = part.strip("⟦⟧") if part.startswith("⟦") else part
        if value is not part:
            spans.append((len(text), len(text) + len(value)))
        text += value
    return Sample(kind, text, tuple(spans))

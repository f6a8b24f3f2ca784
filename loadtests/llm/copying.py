"""Answers that repeat their prompt with changes: edits of code, and quotes from documents.

The prompts are passages of this repository's own files, others in every round, and end where the repetition begins.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loadtests.llm.workloads import PromptRequest, Word, Workload
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.store import resolve

BUNDLED = "bundled:smollm2-135m-instruct"
_ROOT = Path(__file__).resolve().parents[2]
_CODE = ("policies", "runtimes/llm/engine", "adapters/wire")
_DOCUMENTS = ("docs",)
_LINES = 40
_EDIT = (
    "This is a part of a module:\n```python\n{text}\n```\n\n"
    "The same part, in which `{old}` is called `{old}_now`:\n```python\n{begin}\n"
)
_QUOTE = "{text}\n\n---\n\nWhat exactly does the text above say? It says:\n\n{begin}\n"


@dataclass(frozen=True, slots=True)
class Copying(Workload):
    """Every other request is an edit, the rest are quotes. `prompt` bounds nothing: all passages have the same number
    of lines."""

    def build(self, words: Sequence[Word], seed: str, requests: int | None = None) -> list[PromptRequest]:
        """The requests of one point: another `seed`, other passages."""
        rng = random.Random(f"{self.name} {seed}")
        tokenizer = _tokenizer()
        built = []
        for number, (_, answer) in enumerate(self.lengths(self.requests if requests is None else requests)):
            text = _edit(rng) if number % 2 else _quote(rng)
            built.append(PromptRequest(tuple(tokenizer.encode(text)), text, answer))
        return built


def _edit(rng: random.Random) -> str:
    lines = _passage(rng, _CODE, "*.py")
    names = sorted({word for line in lines for word in line.split() if word.isidentifier() and len(word) > 3})
    return _EDIT.format(text="\n".join(lines), old=rng.choice(names or ["self"]), begin="\n".join(lines[:2]))


def _quote(rng: random.Random) -> str:
    lines = _passage(rng, _DOCUMENTS, "*.md")
    return _QUOTE.format(text="\n".join(lines), begin=lines[0])


def _passage(rng: random.Random, folders: tuple[str, ...], pattern: str) -> list[str]:
    """Some neighbouring lines that are not empty."""
    lines = rng.choice(_files(folders, pattern))
    begin = rng.randrange(len(lines) - _LINES)
    return list(lines[begin : begin + _LINES])


@lru_cache
def _tokenizer() -> Tokenizer:
    return load_tokenizer(resolve(BUNDLED))


@lru_cache
def _files(folders: tuple[str, ...], pattern: str) -> list[tuple[str, ...]]:
    """The lines of the files, of those that are long enough."""
    paths = sorted(path for folder in folders for path in (_ROOT / folder).glob(pattern))
    files = [tuple(line for line in path.read_text().splitlines() if line.strip()) for path in paths]
    return [lines for lines in files if len(lines) > _LINES]


W6 = (
    Copying("w6", 8, 1, prompt=(0, 0), answer=(128, 192)),
    Copying("w6-8", 24, 8, prompt=(0, 0), answer=(128, 192)),
)
"""One after the other, and eight at once."""

"""The workloads of the LLM benchmark. Lengths are the same in every round; the words of prompts are new each time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from runtimes.llm.weights.gguf_metadata import read_metadata

_SPACE = "Ġ"  # how byte-level vocabularies write a blank


class Word(NamedTuple):
    """A token that is a blank and a plain word, so that prompts of these are the same as text and as token ids."""

    id: int
    text: str


class PromptRequest(NamedTuple):
    """One request."""

    prompt: tuple[int, ...]
    text: str
    max_tokens: int
    model: str = ""
    """An adapter of the server's model; the model itself if empty."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`requests` of which `at_once` are in flight; lengths in tokens, from the shortest to the longest.

    `shared` tokens come first in every prompt, beside its own. Requests take turns with so many `adapters`.
    """

    name: str
    requests: int
    at_once: int
    prompt: tuple[int, int]
    answer: tuple[int, int]
    shared: int = 0
    adapters: int = 0

    def lengths(self, requests: int) -> list[tuple[int, int]]:
        """Of the prompt's own part and of the answer, for each request."""
        rng = random.Random(self.name)
        return [(rng.randint(*self.prompt), rng.randint(*self.answer)) for _ in range(requests)]

    def build(self, words: Sequence[Word], seed: str, requests: int | None = None) -> list[PromptRequest]:
        """The requests of one point: another `seed`, other words."""
        rng = random.Random(f"{self.name} {seed}")
        system = rng.choices(words, k=self.shared)
        built = []
        for number, (own, answer) in enumerate(self.lengths(self.requests if requests is None else requests)):
            prompt = system + rng.choices(words, k=own)
            text, model = (
                "".join(word.text for word in prompt),
                adapter_name(number % self.adapters) if self.adapters else "",
            )
            built.append(PromptRequest(tuple(word.id for word in prompt), text, answer, model))
        return built


def adapter_name(number: int) -> str:
    """The model that a client names for an adapter."""
    return f"adapter-{number}"


W1 = Workload("w1", 64, 32, prompt=(32, 256), answer=(64, 192))
W2 = Workload("w2", 8, 1, prompt=(128, 128), answer=(128, 128))
W3 = Workload("w3", 64, 32, prompt=(32, 32), answer=(32, 32), shared=512)
W4 = Workload("w4", 64, 32, prompt=(544, 544), answer=(32, 32))
W5 = (
    Workload("w5-2k", 4, 1, prompt=(2000, 2000), answer=(128, 128)),
    Workload("w5-4k", 4, 1, prompt=(4000, 4000), answer=(128, 128)),
    Workload("w5-2k-8", 24, 8, prompt=(2000, 2000), answer=(128, 128)),
    Workload("w5-4k-8", 16, 8, prompt=(4000, 4000), answer=(128, 128)),
)
"""Long prompts, one after the other and eight at once."""
ADAPTERS = 8
LORA = (
    Workload("lora", 32, 8, prompt=(32, 32), answer=(128, 128), adapters=ADAPTERS),
    Workload("lora-base", 32, 8, prompt=(32, 32), answer=(128, 128)),
)
"""Eight adapters in a batch of eight, and the same load of the model itself."""
MOE = (
    Workload("moe", 8, 1, prompt=(128, 128), answer=(64, 64)),
    Workload("moe-8", 32, 8, prompt=(64, 128), answer=(64, 64)),
)
"""Of the mixture of experts alone."""
WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4, *W5, *LORA)}
LONGEST = max(one.shared + one.prompt[1] + one.answer[1] for one in WORKLOADS.values())
"""Tokens of the longest prompt and its answer."""


def vocabulary(gguf: Path) -> list[Word]:
    """The plain English-looking words among a model's tokens."""
    tokens: list[str] = read_metadata(gguf)["tokenizer.ggml.tokens"]
    return [
        Word(index, " " + token[1:])
        for index, token in enumerate(tokens)
        if token.startswith(_SPACE) and len(token) > 2 and token[1:].isascii() and token[1:].isalpha()
    ]

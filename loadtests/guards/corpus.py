"""The streams: a forbidden span in a sentence, cut into chunks at every place, in each part of an answer."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

SPANS: dict[str, str] = {
    "word": "bluebird",
    "phrase": "project atlas",
    "pattern": "T-4821357",
    "key": "AKIAQ7RZ5MNP3XK2TDWJ",
}
"""One of each kind. Every product has a filter for it."""
PATTERNS = {"pattern": r"\bT-[0-9]{4,9}\b", "key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"}
"""Those that are found by a regular expression, which is the same for every product."""
PLACES = ("text", "thoughts", "arguments")
BEFORE, AFTER = "As far as I know, the plan for ", " is on the second page, and nobody has changed it since May."
HARMLESS = "the summer"
"""In the place of a span: such an answer must arrive unchanged."""


@dataclass(frozen=True, slots=True)
class Case:
    """One answer."""

    kind: str
    """That of the span; empty for a harmless answer."""
    place: str
    chunks: tuple[str, ...]

    @property
    def span(self) -> str:
        """What must not arrive."""
        return SPANS.get(self.kind, "")

    @property
    def text(self) -> str:
        """The text of the part."""
        return "".join(self.chunks)


def cuts(span: str) -> Iterator[tuple[str, ...]]:
    """The sentence with the span: whole, cut once at every place of the span, and cut after every character."""
    yield (BEFORE + span + AFTER,)
    for at in range(1, len(span)):
        yield (BEFORE + span[:at], span[at:] + AFTER)
    yield tuple(BEFORE + span + AFTER)


def cases() -> list[Case]:
    """All streams. The arguments of a tool are an object of JSON."""
    made = []
    for kind, span in [*SPANS.items(), ("", HARMLESS)]:
        for place in PLACES:
            for chunks in cuts(span):
                if place == "arguments":
                    chunks = ('{"note":"' + chunks[0], *chunks[1:-1], chunks[-1] + '"}') if len(chunks) > 1 else (
                        json.dumps({"note": chunks[0]}, separators=(",", ":")),
                    )  # fmt: skip
                made.append(Case(kind, place, chunks))
    return made

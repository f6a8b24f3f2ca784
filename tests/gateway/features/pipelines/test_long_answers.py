"""The work on long answers of drafts and members leaves the event loop, by bytes and characters and not by times."""

from typing import Any

import pytest

from adapters import offload
from gateway.features.pipelines import answers, drafts
from tests.gateway.features.pipelines.rigs import chat_fake, rig
from tests.support.gateways import chat

GRAPHS: dict[str, dict[str, Any]] = {
    "vote": {"ensemble": {"members": ["a", "b"], "combine": "vote"}},
    "text": {"agree": {"of": ["a", "b"]}},
    "edit": {"agree": {"of": ["a", "b"], "by": "edit"}},
    "number": {"agree": {"of": ["a", "b"], "by": "number"}},
    "judge": {"judge": {"of": ["a", "b"], "model": "j"}},
}
BOUNDS = {"vote": answers.LONG, "judge": drafts.LONG_PROMPT}
"""The bound of a kind; that of the others is `drafts.LONG_DRAFTS`."""
LETTERS = ("x", "é", "\u0327\u0301", "😀")
PARTS = (1, 2, 12)
"""One text has the bound, or two; a character has up to 12 bytes in JSON."""


@pytest.mark.parametrize("kind", GRAPHS)
async def test_long_texts_are_processed_by_a_worker(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, bool, int]] = []

    async def run(size: int, function: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append((function.__name__, size >= offload.LARGE, _size(function.__name__, args)))
        return function(*args, **kwargs)

    monkeypatch.setattr(offload, "run", run)

    async def answered(length: int, letter: str) -> None:
        text = (letter * length)[:length]
        fakes = {"a": chat_fake(text), "b": chat_fake(f"{text}!"), "j": chat_fake("[[B]]")}
        one = rig(GRAPHS[kind], fakes)
        async for _ in await one.core.handle(one.principal, chat("whole"), {}, one.record()):
            pass

    await answered(answers.LONG, "x")
    for length in (BOUNDS.get(kind, drafts.LONG_DRAFTS) // parts + more for parts in PARTS for more in (-1, 0)):
        for letter in LETTERS:
            await answered(length, letter)
    bounds = {"answer_values": answers.LONG, "agreement": drafts.LONG_DRAFTS, "prompt_messages": drafts.LONG_PROMPT}
    seen = {name for name, _, _ in sent}
    assert {"vote": set(), "judge": {"prompt_messages"}}.get(kind, {"agreement"}) <= seen
    assert any(is_offloaded for name, is_offloaded, _ in sent if name == "answer_values")
    for name, is_offloaded, size in sent:
        if name in bounds:
            assert is_offloaded == (size >= bounds[name]), (name, size)


def _size(name: str, args: tuple[Any, ...]) -> int:
    """The bytes or characters that a function processes."""
    if name == "agreement":
        return sum(map(len, args[0]))
    if name == "prompt_messages":
        return sum(map(len, args[1].values()))
    return len(args[0]) if isinstance(args[0], bytes) else 0

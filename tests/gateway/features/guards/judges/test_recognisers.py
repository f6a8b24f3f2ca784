"""Guards of personal data that ask a recogniser for names and places."""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.guards import RecogniserConfig
from gateway.features.guards import recognition
from gateway.features.guards.judges import recognisers
from gateway.features.guards.judges.base import FAILURES
from gateway.features.guards.judges.recognisers import OVERLAP, WINDOW, windows_of
from gateway.features.guards.personal import PersonalTexts
from policies.guards.personal.masking import Recognised
from tests.support.guarding import WORDS, received
from tests.support.judging import prompt_of
from tests.support.personal import written
from tests.support.recognising import NAMES, RECOGNISER, Echo, Recognising, recognising

CHATS = "/v1/chat/completions"
TEXT = "\U0001f600 Anna Schmidt (anna@example.com) and Zoë moved to Görlitz; 李明 did not."
Verdicts = dict[tuple[str, str, str, str], int]


def content(body: str) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def guard(**recogniser: Any) -> dict[str, Any]:
    return {**RECOGNISER, "recogniser": {"model": "names", **recogniser}}


async def test_names_are_masked_and_come_back() -> None:
    model, server = Echo(), Recognising()
    one = recognising(server, model)
    ((status, body, _),) = await received(one, CHATS, **prompt_of(TEXT))
    assert (status, content(body)) == (200, TEXT)
    (sent,) = model.received
    assert not [name for name in (*NAMES, "anna@") if name in sent]
    assert written("PERSON", "Anna Schmidt") in sent
    assert written("LOCATION", "Görlitz") in sent
    assert server.bodies == [
        {"text": TEXT, "language": "en", "entities": ["PERSON", "LOCATION"], "score_threshold": 0.5}
    ]
    assert one.log.records[0].guards == {("people", "mask", "enforce", "prompt"): 5}
    one.assert_idle()


async def test_a_name_is_masked_wherever_it_stands() -> None:
    server = Recognising({"and Anna Schmidt": "PERSON"})  # known beside other words alone
    server.answer = json.dumps([{"start": 0, "end": 12, "entity_type": "PERSON", "score": 0.6}]).encode()
    model = Echo()
    one = recognising(server, model)
    messages = [
        {"role": "user", "content": "Anna Schmidt is here"},
        {"role": "user", "content": [{"type": "text", "text": "ask Anna Schmidt, not Anna Schmidtke"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"to": "Anna Schmidt"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": "well"},
    ]  # fmt: skip
    ((status, _, _),) = await received(one, CHATS, messages=messages, user="Anna Schmidt")
    assert status == 200
    (sent,) = model.received
    assert sent.count(written("PERSON", "Anna Schmidt")) == 4
    assert sent.replace("Anna Schmidtke", "").count("Anna Schmidt") == 0


async def test_the_recogniser_receives_the_masks_of_other_guards() -> None:
    server = Recognising()
    one = recognising(server, Echo(), guards=[{**WORDS, "action": "mask"}])
    ((status, body, _),) = await received(one, CHATS, **prompt_of("Anna has a zebra"))
    assert (status, content(body)) == (200, "Anna has a […]")
    assert server.texts == ["Anna has a […]"]
    assert one.log.records[0].guards == {
        ("words", "mask", "enforce", "prompt"): 1, ("people", "mask", "enforce", "prompt"): 1
    }  # fmt: skip


async def test_a_guard_that_monitors_only_counts() -> None:
    model = Echo()
    one = recognising(Recognising(), model, {**RECOGNISER, "mode": "monitor"})
    ((status, body, _),) = await received(one, CHATS, **prompt_of(TEXT))
    assert (status, content(body)) == (200, TEXT)
    assert "Anna Schmidt" in model.received[0]
    assert one.log.records[0].guards == {("people", "mask", "monitor", "prompt"): 6}  # both names of Anna are counted


async def test_a_client_receives_its_own_placeholders() -> None:
    text = f"{written('PERSON', 'Anna')} and Zoë"
    model = Echo()
    ((_, body, _),) = await received(recognising(Recognising(), model), CHATS, **prompt_of(text))
    assert content(body) == text
    assert written("PERSON", "Anna") not in model.received[0]


@pytest.mark.parametrize("on_error", ["block", "pass"])
@pytest.mark.parametrize(
    "broken",
    [
        b"{", b"{}", b"[1]", b'[{"start": 0}]',
        b'[{"start": -1, "end": 2, "entity_type": "PERSON", "score": 1.0}]',
        b'[{"start": 2, "end": 2, "entity_type": "PERSON", "score": 1.0}]',
        b'[{"start": 0, "end": 9999, "entity_type": "PERSON", "score": 1.0}]',
    ],
)  # fmt: skip
async def test_an_answer_without_places_is_a_failure(broken: bytes, on_error: str) -> None:
    server, model = Recognising(), Echo()
    server.answer = broken
    one = recognising(server, model, guard(on_error=on_error))
    ((status, body, _),) = await received(one, CHATS, **prompt_of(TEXT))
    if on_error == "block":
        assert (status, json.loads(body)["error"]["code"]) == (502, "guard_failed")
        assert "Anna" not in body
        assert not model.calls
    else:
        assert (status, content(body)) == (200, TEXT)
        assert "anna@" not in model.received[0]  # what needs no recogniser is masked
    assert one.log.records[0].guards[("people", "error", "enforce", "prompt")] == 1  # type: ignore[index]
    one.assert_idle()


@pytest.mark.parametrize("failure", ["raises", "status", "silence"])
async def test_a_recogniser_that_fails_rests(failure: str) -> None:
    server, model = Recognising(), Echo()
    server.fails, server.status = failure == "raises", 500 if failure == "status" else 200
    server.gate = asyncio.Event() if failure == "silence" else None
    one = recognising(server, model, guard(timeout="50ms"))
    answers = await received(one, CHATS, FAILURES + 1, **prompt_of(TEXT))
    assert {(status, json.loads(body)["error"]["code"]) for status, body, _ in answers} == {(502, "guard_failed")}
    assert len({body["text"] for body in server.bodies}) == 1
    assert one.log.records[-1].error is not None
    assert "rests" in str(one.log.records[-1].error.detail)
    assert not model.calls
    one.assert_idle()


async def test_a_prompt_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognisers, "WINDOW", 400)
    monkeypatch.setattr(recognisers, "MOST_WINDOWS", 2)
    server, model = Recognising(), Echo()
    one = recognising(server, model, guard(on_error="pass"))
    ((status, body, _),) = await received(one, CHATS, **prompt_of("Anna " * 200))
    assert (status, "too long" in body) == (413, True)
    assert not server.bodies
    assert not model.calls
    one.assert_idle()


async def test_only_configured_entities_with_a_score_are_masked() -> None:
    server, model = Recognising(), Echo()
    spans = [("PERSON", 0, 4, 0.9), ("PERSON", 5, 8, 0.7), ("DATE_TIME", 9, 12, 1.0)]
    server.answer = json.dumps([
        {"start": begin, "end": end, "entity_type": kind, "score": score} for kind, begin, end, score in spans
    ]).encode()  # fmt: skip
    one = recognising(server, model, guard(threshold=0.8, entities=["PERSON", "US_DRIVER_LICENSE"], language="de"))
    await received(one, CHATS, **prompt_of("Anna Zoë May"))
    assert written("PERSON", "Anna") + " Zoë May" in model.received[0]
    assert server.bodies[0]["language"] == "de"


@given(st.lists(st.text(alphabet="aä\U0001f600 \n1", max_size=3 * WINDOW // 2), max_size=6), st.data())
def test_windows_have_each_text_at_its_place(texts: list[str], data: st.DataObject) -> None:
    windows = list(windows_of(texts))
    covered: dict[str, int] = {}
    for window in windows:
        joined = "\n\n".join(piece.part for piece in window)
        assert len(joined) <= WINDOW
        for piece in window:
            assert joined[piece.at : piece.at + len(piece.part)] == piece.part
            assert piece.text[piece.begin : piece.begin + len(piece.part)] == piece.part
            assert piece.begin <= max(covered.get(piece.text, 0) - OVERLAP, 0)
            covered[piece.text] = piece.begin + len(piece.part)
    assert covered == {text: len(text) for text in texts if any(map(str.isalpha, text))}


async def test_a_name_in_a_long_text_is_masked_at_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognisers, "WINDOW", 400)
    monkeypatch.setattr(recognisers, "OVERLAP", 20)
    text = "".join(f"{'x ' * 190} {' ' * shift}Anna Schmidt " for shift in range(30))
    server, model = Recognising({"Anna Schmidt": "PERSON"}), Echo()
    one = recognising(server, model)
    ((_, body, _),) = await received(one, CHATS, **prompt_of(text))
    assert content(body) == text
    assert "Anna" not in model.received[0]
    assert "Schmidt" not in model.received[0]
    assert max(map(len, server.texts)) == 400


@pytest.mark.parametrize(("many", "beside"), [(5, True), (6, False)])
async def test_many_names_are_learnt_beside_the_loop(monkeypatch: pytest.MonkeyPatch, many: int, beside: bool) -> None:
    threads, learn = list[threading.Thread](), PersonalTexts.learn

    def noted(personal: PersonalTexts, recognised: Mapping[str, Sequence[Recognised]]) -> None:
        threads.append(threading.current_thread())
        learn(personal, recognised)

    monkeypatch.setattr(PersonalTexts, "learn", noted)
    monkeypatch.setattr(recognition, "MANY", many)
    names = ("Anna", "Zoë", "Jim", "Bob", "Eve")
    model = Echo()
    one = recognising(Recognising(dict.fromkeys(names, "PERSON")), model)
    ((_, body, _),) = await received(one, CHATS, **prompt_of(" ".join(names)))
    assert content(body) == " ".join(names)
    assert not [name for name in names if name in model.received[0]]
    (thread,) = threads
    assert (thread is not threading.current_thread()) == beside


@given(
    st.lists(st.text(alphabet="aZ\U0001f600 1", min_size=1, max_size=9), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), max_size=6),
)
def test_an_entity_has_its_place_in_each_text_that_it_touches(texts: list[str], spans: list[tuple[int, int]]) -> None:
    windows = list(windows_of([f"a{text}a" for text in texts]))
    (window,) = windows
    joined = "\n\n".join(piece.part for piece in window)
    entities = [
        recognisers._Entity(begin, min(begin + size, len(joined)), "PERSON", 1.0)
        for begin, size in spans
        if begin < len(joined)
    ]
    one = recognisers.Recogniser(RecogniserConfig(model="names"))
    placed = [(text, each.begin, each.end) for text, each in one._placed(window, entities, 0)]
    expected = []
    for entity in entities:
        for piece in window:
            touched = range(max(entity.start, piece.at), min(entity.end, piece.at + len(piece.part)))
            shown = [at - piece.at for at in touched if not joined[at].isspace()]
            if any(piece.text[at].isalnum() for at in shown):
                expected.append((piece.text, shown[0], shown[-1] + 1))
    assert placed == expected

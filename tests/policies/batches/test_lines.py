"""The examination, the order and the ids of lines, for files of any content and in parts of any size."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.batches.lines import TOO_LONG, decode_line, examine, is_endpoint
from policies.batches.order import arranged, entries_of, examine_lines, shard_range, shards_of, too_long_entry

CHAT = "/v1/chat/completions"
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "custom_id": JSON | st.text(min_size=1, max_size=3),
        "method": JSON | st.just("POST"),
        "url": JSON | st.just(CHAT),
        "body": JSON | st.fixed_dictionaries({}, optional={"model": JSON, "stream": JSON, "messages": JSON}),
    },
)
LINES = FIELDS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20).map(
    lambda raw: raw.replace(b"\n", b" ")
)


def _no_json(name: str) -> float:
    raise ValueError(name)


def test_a_line_that_is_not_utf_8_is_no_line() -> None:
    assert decode_line(b'{"custom_id":"a","method":"POST","url":"%b","body":{"x":"\xff"}}' % CHAT.encode()) is None


@given(LINES)
def test_every_line_has_facts_or_a_problem(raw: bytes) -> None:
    facts = examine(raw, CHAT, 7)
    assert facts.problem is None or facts.problem.line == 7
    assert (len(facts.model_hash), len(facts.prefix_hash)) == (8, 8)
    try:
        line = json.loads(raw, parse_constant=_no_json)  # Python reads NaN and Infinity, which are no JSON
    except ValueError:
        return
    if not isinstance(line, dict):
        assert facts.problem is None
        return
    body = line.get("body")
    valid = (
        isinstance(line.get("custom_id"), str)
        and line["custom_id"] != ""
        and line.get("method") == "POST"
        and line.get("url") == CHAT
        and isinstance(body, dict)
        and (body.get("stream") is None or body["stream"] is False)
    )
    assert (facts.problem is None) is valid
    assert bool(facts.id_hash) is valid


@given(st.lists(LINES | st.just(b"") | st.just(b"  ") | st.just(b"\r"), max_size=12), st.integers(1, 12), st.booleans())
def test_parts_of_a_file_are_examined_like_the_whole(lines: list[bytes], size: int, ends: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    whole = examine_lines(data, CHAT, 1, 0)
    entries, ids, number, offset = b"", b"", 1, 0
    pieces = data.split(b"\n")
    pieces = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    for at in range(0, len(pieces), size):
        part = b"".join(pieces[at : at + size])
        examined = examine_lines(part, CHAT, number, offset)
        entries += examined.entries
        ids += examined.ids
        number += examined.lines
        offset += len(part)
    assert (entries, ids) == (whole.entries, whole.ids)
    for entry in entries_of(entries):
        assert data[entry.offset : entry.offset + entry.length].strip()
        assert b"\n" not in data[entry.offset : entry.offset + entry.length]
    present = [number for number, piece in enumerate(pieces, 1) if piece.strip()]
    assert [entry.number for entry in entries_of(entries)] == present


@given(st.lists(st.sampled_from("abcdefgh"), max_size=12))
def test_each_id_that_occurs_again_is_reported(ids: list[str]) -> None:
    data = b"".join(line(id_, "m", "hi") for id_ in ids)
    examined = examine_lines(data, CHAT, 1, 0)
    _, problems = arranged(examined.entries, examined.ids)
    assert [problem.line for problem in problems] == [i for i, id_ in enumerate(ids, 1) if id_ in ids[: i - 1]]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["one", "two", "three"])), max_size=30))
def test_lines_of_a_model_and_a_prompt_run_together(pairs: list[tuple[str, str]]) -> None:
    data = b"".join(line(str(i), *pair) for i, pair in enumerate(pairs))
    examined = examine_lines(data, CHAT, 1, 0)
    ordered, problems = arranged(examined.entries, examined.ids)
    assert problems == ()
    run = [pairs[entry.number - 1] for entry in entries_of(ordered)]
    assert sorted(run) == sorted(pairs)
    groups = [pair for i, pair in enumerate(run) if i == 0 or run[i - 1] != pair]
    assert len(groups) == len(set(pairs))
    models = [model for i, (model, _) in enumerate(run) if i == 0 or run[i - 1][0] != model]
    assert len(models) == len({model for model, _ in pairs})


@given(st.integers(0, 3000))
def test_shards_have_each_line_once(lines: int) -> None:
    order = b"".join(too_long_entry(i, i) for i in range(lines))
    seen = list[int]()
    for shard in range(shards_of(lines)):
        start, length = shard_range(shard)
        part = list(entries_of(order[start : start + length]))
        assert part
        assert all(entry.length == TOO_LONG for entry in part)
        seen += [entry.number for entry in part]
    assert seen == list(range(lines))


def test_endpoints() -> None:
    assert all(map(is_endpoint, (CHAT, "/v1/messages", "/v2/models/m/infer", "/v2/models/m/versions/1/infer")))
    refused = ("/v1/files", "/v2/models/m/generate", "/v2/models/a/b/infer", "", "/v2/models/m/infer?x=1", CHAT + "/")
    assert not any(map(is_endpoint, refused))


def line(custom_id: str, model: str, content: str) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}).encode() + b"\n"

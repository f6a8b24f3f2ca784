"""A log that is cut or damaged anywhere has its whole records before that place, and never another one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.features.batches.calls import one_line
from gateway.features.batches.results import Charges, LineResult, encode_result, read_log, unfinished_line
from gateway.features.usage.labels import COUNTERS, UsageLabels
from tests.support.bad_answers import bad_json

LABELS = st.builds(UsageLabels, *[st.sampled_from(["", "a", "b"])] * 5)
AMOUNTS = st.tuples(*[st.integers(0, 10**15)] * len(COUNTERS))
RESULTS = st.builds(
    LineResult,
    st.integers(0, 2**31),
    st.booleans(),
    st.binary(max_size=50),
    st.none() | LABELS,
    st.integers(0, 10**6),
    AMOUNTS,
)


@given(st.lists(RESULTS, max_size=8), st.data())
def test_a_cut_log_has_its_whole_records(results: list[LineResult], data: st.DataObject) -> None:
    records = [encode_result(result) for result in results]
    log = b"".join(records)
    assert read_log(log) == (results, len(log))
    at = data.draw(st.integers(0, len(log)))
    cut = read_log(log[:at])
    assert cut.results == results[: len(cut.results)]
    assert cut.size == sum(map(len, records[: len(cut.results)])) <= at
    assert len(cut.results) == len(results) or cut.size + len(records[len(cut.results)]) > at


@given(st.lists(RESULTS, min_size=1, max_size=5), st.data())
def test_a_damaged_record_ends_the_log(results: list[LineResult], data: st.DataObject) -> None:
    log = bytearray(b"".join(map(encode_result, results)))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= data.draw(st.integers(1, 255))
    damaged = read_log(bytes(log))
    assert damaged.results == results[: len(damaged.results)]
    assert damaged.size <= at


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    assert read_log(data).size <= len(data)


@given(st.lists(RESULTS, max_size=10))
def test_charges_are_the_sums_of_the_records(results: list[LineResult]) -> None:
    charges = Charges()
    for result in results:
        charges.add(result)
    rows = charges.rows()
    assert [row.slot for _, row in rows] == list(range(len(rows)))
    for i in range(len(COUNTERS)):
        paid = [result.amounts[i] for result in results if result.labels is not None]
        assert sum(row.counters[i] for _, row in rows) == sum(paid)
    again = Charges()
    for result in results:
        again.add(result)
    assert again.rows() == rows


@pytest.mark.parametrize(("code", "result"), [("batch_expired", "expired"), ("batch_cancelled", "canceled")])
def test_an_unfinished_request_has_the_result_of_its_api(code: str, result: str) -> None:
    assert json.loads(unfinished_line("anthropic", "a", code)) == {"custom_id": "a", "result": {"type": result}}
    line = json.loads(unfinished_line("openai", "a", code))
    assert (line["custom_id"], line["response"], line["error"]["code"]) == ("a", None, code)


@given(bad_json({"a": [1, {"b": "c\u00e9"}]}))
async def test_an_answer_is_one_line_of_json_or_none(body: bytes) -> None:
    for text in (body, body.replace(b",", b",\r\n")):
        if (line := await one_line(text)) is not None:
            assert not {0x0A, 0x0D} & set(bytes(line))
            bytes(line).decode()

"""Requests as handlers of TorchServe get them, and their answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.torchserve_api.requests import MAX_PARTS, Parameter, encoded, parameters_of, value_of

names = st.text("abcdefg_-", min_size=1, max_size=8)


def form(parts: list[tuple[str, bytes]], boundary: str = "edge") -> bytes:
    pieces = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\n'
        f"Content-Type: application/octet-stream\r\n\r\n".encode()
        + value
        + b"\r\n"
        for name, value in parts
    ]
    return b"".join(pieces) + f"--{boundary}--\r\n".encode()


def headers(kind: str) -> dict[str, dict[str, str]]:
    return {"headers": {"content-type": kind}}


@given(parts=st.lists(st.tuples(names, st.binary(max_size=60)), max_size=5))
def test_the_parts_of_a_form_are_its_bytes(parts: list[tuple[str, bytes]]) -> None:
    parts_read = parameters_of(form(parts), headers("multipart/form-data; boundary=edge"))
    assert [(part.name, part.value) for part in parts_read] == parts
    assert all(value_of(part) == bytearray(part.value) for part in parts_read)


@given(body=st.binary(max_size=200), kind=st.text(max_size=40))
def test_any_body_is_read_or_refused(body: bytes, kind: str) -> None:
    for content_type in (kind, "multipart/form-data; boundary=edge", "application/x-www-form-urlencoded", "text/plain"):
        try:
            parts = parameters_of(body, headers(content_type))
        except ValueError:
            continue
        assert all(isinstance(part, Parameter) for part in parts)


@pytest.mark.parametrize("body", [b"", b"--edge", form([("a", b"1")])[:-6], form([("a", b"1")]).replace(b"name", b"x")])
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="form"):
        parameters_of(body, headers("multipart/form-data; boundary=edge"))


@given(value=st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5))
def test_values_and_answers(value: object) -> None:
    body = json.dumps(value).encode()
    (part,) = parameters_of(body, headers("application/json; charset=utf-8"))
    assert value_of(part) == value
    if not isinstance(value, str):
        assert json.loads(encoded(value)) == value
    assert parameters_of(body, None) == [Parameter("data", "", body)]


def test_json_that_is_too_deep_stays_bytes() -> None:
    body = b"[" * 100_000
    (part,) = parameters_of(body, headers("application/json"))
    assert value_of(part) == bytearray(body)


def test_the_parts_of_a_form_are_bounded() -> None:
    multipart, urlencoded = headers("multipart/form-data; boundary=edge"), headers("application/x-www-form-urlencoded")
    assert len(parameters_of(form([("a", b"1")] * MAX_PARTS), multipart)) == MAX_PARTS
    assert len(parameters_of(b"&".join([b"a=1"] * MAX_PARTS), urlencoded)) == MAX_PARTS
    for count in (MAX_PARTS + 1, 3 * MAX_PARTS):
        with pytest.raises(ValueError, match="parts"):
            parameters_of(form([("a", b"1")] * count), multipart)
        with pytest.raises(ValueError, match="fields"):
            parameters_of(b"&".join([b"a=1"] * count), urlencoded)

"""An uploaded form, in pieces of any size: the file, its fields, its name; and any other bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from gateway.features.batches.fronts.files import UploadForm, file_name

BOUNDARY = "b0undary"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def encoded(content: bytes, filename: str, purpose: str) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--{BOUNDARY}\r\n'
    file = f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\nContent-Type: a/b\r\n\r\n'
    return head.encode() + file.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def parsed(body: bytes, sizes: list[int]) -> tuple[bytes, UploadForm]:
    form, content, at = UploadForm(TYPE), b"", 0
    for size in [*sizes, len(body) + 1]:
        content += form.feed(body[at : at + size])
        at += size
    return content, form


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from([b"\r\n", b"--", BOUNDARY.encode(), b"x"]), max_size=9).map(b"".join),
    st.lists(st.integers(1, 40), max_size=40),
)
def test_the_file_is_the_same_in_pieces_of_any_size(content: bytes, sizes: list[int]) -> None:
    if f"\r\n--{BOUNDARY}".encode() in b"\r\n" + content:
        return  # a client chooses another boundary
    received, form = parsed(encoded(content, "a.jsonl", "batch"), sizes)
    assert received == content
    assert form.finish() == {"purpose": "batch"}
    assert form.filename == "a.jsonl"


@given(st.binary(max_size=400), st.lists(st.integers(1, 40), max_size=20))
def test_other_bytes_are_a_callers_error(body: bytes, sizes: list[int]) -> None:
    with pytest.raises(CallerError):
        parsed(body, sizes)[1].finish()


@given(st.integers(0, 10_000))
def test_a_form_that_is_cut_is_refused(cut: int) -> None:
    body = encoded(b"x" * 100, "a", "batch")
    with pytest.raises(CallerError):
        parsed(body[: cut % (len(body) - 4)], [])[1].finish()


@given(st.text(max_size=300))
def test_a_name_has_no_folder(text: str) -> None:
    name = file_name(text)
    assert 0 < len(name) <= 255
    assert name not in (".", "..")
    assert not set(name) & set("/\\\x00\n\r")


@pytest.mark.parametrize(
    ("path", "name"),
    [("../../etc/passwd", "passwd"), ("C:\\x\\in.jsonl", "in.jsonl"), ("..", "file"), ("", "file"), ("a/", "file")],
)
def test_path_names_are_harmless(path: str, name: str) -> None:
    assert file_name(path) == name


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=b"])
def test_other_types_are_refused(content_type: str) -> None:
    with pytest.raises(CallerError):
        UploadForm(content_type)

"""Addresses of model repositories."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from config.schema.runtimes.bundled import TensorRuntime
from config.stores import address_of, folder_of


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("models", "models"),
        ("../models", "../models"),
        ("/srv/models", "/srv/models"),
        ("file:///srv/models", "/srv/models"),
        ("file://localhost/srv/my%20models", "/srv/my models"),
    ],
)
def test_a_folder_is_a_path_or_a_file_url(text: str, folder: str) -> None:
    assert folder_of(text) == Path(folder)


@pytest.mark.parametrize(
    "text",
    [
        "file://elsewhere/models",
        "file://models",
        "file:///m?x=1",
        "ftp://h/m",
        "x://",
        "https://h/m",
        "https:///m.zip",
        "https://u:p@h/m.zip",
        "https://h/m.zip#sha256=12",
        "https://h:x/m.zip",
        "https://h/a b.zip",
        "file:///m#sha256=1",
        "s3://",
        "s3://UPPER/x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
        "s3://bucket/x?y=1",
        "s3://key:secret@bucket/x",
        "hf://org",
        "hf://org/name@",
        "hf://org/name/../x",
        "hf://org/name?x=1",
        "hf://org@x/name",
        "oci://host",
        "oci://host/UPPER",
        "oci://u:p@host/x",
        "oci://host/x@sha256:12",
        "oci:///x",
        "oci://host/x?y",
        "gs://bucket/folder#sha256=" + "0" * 64,
    ],
)
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        folder_of(text)


@given(st.text(max_size=60))
def test_any_text_is_a_folder_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert folder_of(text) is not None or address_of(text).text == text


def test_one_repository_is_a_list_of_one() -> None:
    assert TensorRuntime(kind="tensor", repository="m").repository == ("m",)
    assert TensorRuntime(kind="tensor", repository=["a", "file:///b"]).repository == ("a", "file:///b")


@pytest.mark.parametrize("repository", [[], "", [""], ["ftp://host/x"], 3, [3], {"a": "b"}])
def test_a_repository_that_cannot_be_read_is_an_error_of_the_file(repository: object) -> None:
    with pytest.raises(ValidationError):
        TensorRuntime(kind="tensor", repository=repository)


@pytest.mark.parametrize(
    ("text", "name", "archive"),
    [
        ("https://h/models/wine.tar.gz", "wine", "tar"),
        ("HTTPS://h:8443/wine.tgz?X-Signature=1", "wine", "tar"),
        ("http://h/wine%20red.zip", "wine red", "zip"),
        ("file:///srv/wine.tar", "wine", "tar"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/models/wine/", "wine", ""),
        ("gs://bucket/models/wine.tar.gz", "wine", "tar"),
        ("az://container/wine.zip", "wine", "zip"),
        ("hf://Org/Name", "Name", ""),
        ("oci://registry.example.com:5000/team/wine:v1", "wine", ""),
        ("oci://docker.io/wine@sha256:" + "a" * 64, "wine", ""),
        ("hf://org/name@refs%2Fpr%2F1/onnx/model.onnx", "name", ""),
    ],
)
def test_a_place_is_pulled_and_may_name_its_model(text: str, name: str, archive: str) -> None:
    assert folder_of(text) is None
    address = address_of(text)
    assert (address.name, address.archive) == (name, archive)
    assert "Signature" not in address.label

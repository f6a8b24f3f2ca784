"""Addresses of model repositories."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from config.schema.runtimes.bundled import TensorRuntime
from config.stores import folder_of


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


@pytest.mark.parametrize("text", ["file://elsewhere/models", "file://models", "file:///m?x=1", "ftp://h/m", "x://"])
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        folder_of(text)


@given(st.text(max_size=60))
def test_any_text_is_a_folder_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert folder_of(text) is not None


def test_one_repository_is_a_list_of_one() -> None:
    assert TensorRuntime(kind="tensor", repository="m").repository == ("m",)
    assert TensorRuntime(kind="tensor", repository=["a", "file:///b"]).repository == ("a", "file:///b")


@pytest.mark.parametrize("repository", [[], "", [""], ["ftp://host/x"], 3, [3], {"a": "b"}])
def test_a_repository_that_cannot_be_read_is_an_error_of_the_file(repository: object) -> None:
    with pytest.raises(ValidationError):
        TensorRuntime(kind="tensor", repository=repository)

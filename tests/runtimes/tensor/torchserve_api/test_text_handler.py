"""Words of texts as TorchServe has them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.torchserve_api import text_handler
from runtimes.tensor.torchserve_api.text_handler import words_of

MARKUP = re.compile("<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")
"""TorchServe's own pattern."""


@given(text=st.text(st.sampled_from("<>&;#x1aB \n")))
def test_the_markup_of_a_text_is_that_of_torchserve(text: str) -> None:
    lines = "\n".join(map(text_handler._without_markup, text.split("\n")))
    assert lines == MARKUP.sub("", text)


def test_tags_that_never_end_are_read_once() -> None:
    """Of this text TorchServe's pattern reads a million million characters."""
    assert words_of("a> " + "<b " * 1_000_000)[:2] == ["a", "b"]

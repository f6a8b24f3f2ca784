"""The check of clients' paths, against every way in which a server may read one."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.paths import LONGEST, check_path, segment

BASE = "/public/base"
PIECES = st.sampled_from([
    "/", ".", "..", "...", ";", ";x=1", "a", "admin", "%2e", "%2E", "%2f", "%5c", "\\", "%25", "%252e", "%00", "%0a",
    "%3b", "%c0%ae", "%e0%80%ae", "%u002e", "%", "%g0", " ", "\t", "\r\n", "?", "#", "é", "%C3%A9", "~", ":", "@",
])  # fmt: skip
PATHS = st.lists(PIECES, max_size=9).map(lambda pieces: "/" + "".join(pieces))


def readings(path: str) -> Iterator[str]:
    """Every combination of the changes that servers and proxies make to a path before they resolve it."""
    steps: list[Callable[[str], str]] = [
        lambda text: unquote(text, "latin-1"),
        lambda text: text.replace("\\", "/"),
        lambda text: re.sub(r";[^/]*", "", text),
        lambda text: re.sub(r"/{2,}", "/", text),
        lambda text: text.replace("\xc0\xae", "."),
    ]
    seen = {path}
    waiting = [path]
    while waiting:
        text = waiting.pop()
        yield resolved(text)
        for step in steps:
            if (other := step(text)) not in seen:
                seen.add(other)
                waiting.append(other)


def resolved(path: str) -> str:
    """Dot segments removed (RFC 3986, 5.2.4)."""
    segments: list[str] = []
    for part in path.split("/"):
        if part == "..":
            segments = segments[:-1]
        elif part != ".":
            segments.append(part)
    return "/" + "/".join(segments).lstrip("/")


@given(PATHS)
def test_no_reading_of_a_path_leaves_the_root(path: str) -> None:
    try:
        check_path(path)
    except CallerError:
        return
    assert re.fullmatch(r"[!-~]*", path)
    for read in readings(BASE + path):
        assert read.startswith(BASE), read
        assert "//" not in read


@given(st.text(alphabet="abc./\\;%25ef \n\x7fé"))
def test_no_reading_of_a_name_is_another_segment(name: str) -> None:
    try:
        written = segment(name)
    except CallerError:
        return
    for read in readings(f"{BASE}/{written}/infer"):
        assert re.fullmatch(rf"{BASE}/[^\\]+/infer", read), read
        assert not re.search(r"/\.{0,2}/", read), read


@pytest.mark.parametrize(
    "path", ["", "/", "/v1/do%20it;a=1", "/a/", "/a.b/..c/...", "/v2/models/m:predict", "/caf%C3%A9", "/a;b/c;d"]
)
def test_a_path_that_reads_one_way_is_accepted(path: str) -> None:
    check_path(path, "b=2&c=%C3%A9&d=/../x")


@pytest.mark.parametrize(
    "path", ["a", "/..;/y", "/..;a=1/y", "/.;/y", "/;/y", "/;x", "/%2e%2e%3b/y", "/%c0%ae", "/" + "a" * LONGEST]
)
def test_a_path_that_reads_another_way_is_refused(path: str) -> None:
    with pytest.raises(CallerError):
        check_path(path)


@pytest.mark.parametrize("query", ["a b", "a\r\nb", "a#b", "\0"])
def test_a_query_that_would_end_the_request_line_is_refused(query: str) -> None:
    with pytest.raises(CallerError):
        check_path("/a", query)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3", "gpt-4o:latest", "résumé", "a b", "v1.2"])
def test_names_of_models_are_segments(name: str) -> None:
    assert unquote(segment(name)) == name
    assert "/" not in segment(name)

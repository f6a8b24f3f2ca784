from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from config.schema.text import Date, Glob, HeaderName, Name, Url

REFUSED = [
    (Name, ["", "-a", "a b", "a" * 129, "a\n", "é"], "a name"),
    (Glob, ["", "a b", "*\n", "a" * 129], "a name or a glob"),
    (
        Url,
        ["", "10.0.0.5:8000", "ftp://a", "http://", "http://u:p@a", "http://a/?q=1", "unix:run/x", "http://a b"],
        "http://",
    ),
    (Url, ["http://a:99999", "http://a:x", "http://[::1"], "not valid"),
    (Url, ["http://a:0"], "port is 0"),
    (Date, ["2027-6-30", "tomorrow", ""], "a day such as"),
    (Date, ["2027-02-30", "2027-13-01"], "no such day"),
    (HeaderName, ["", "a b", "x:y", "x\r\n"], "header's name"),
]


@pytest.mark.parametrize(("kind", "texts", "sentence"), REFUSED)
def test_refused_with_a_sentence_of_its_own(kind: Any, texts: list[str], sentence: str) -> None:
    for text in texts:
        with pytest.raises(ValidationError, match=sentence):
            TypeAdapter(kind).validate_python(text)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Name, ["a", "gpt-4o", "meta-llama/Llama-3.1-8B", "a:b_c"]),
        (Glob, ["*", "gpt-*", "[ab]?", "a[!b]", "plain"]),
        (Url, ["http://a", "https://a.b:443", "http://[::1]:80/v1", "unix:/run/x.sock"]),
        (Date, ["2027-06-30", "2028-02-29"]),
        (HeaderName, ["X-Tier"]),
    ],
)
def test_accepted(kind: Any, texts: list[str]) -> None:
    for text in texts:
        assert TypeAdapter(kind).validate_python(text) == text


def test_names_of_a_cluster_are_hosts_like_any_other() -> None:
    """Operators choose the names of servers: no list of forbidden names exists."""
    for host in ("vllm.models.svc.cluster.local:8000", "localhost:8000", "10.96.0.10", "[fd00::1]:8000", "triton"):
        assert TypeAdapter(Url).validate_python(f"http://{host}") == f"http://{host}"

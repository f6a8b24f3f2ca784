"""`Headers` behaves like the mapping of its fields."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.http1.message import Headers

NAMES = st.text("abcdefgh-é", min_size=1, max_size=6)


@given(fields=st.dictionaries(NAMES, st.text("ab €é", max_size=4)), name=NAMES)
def test_a_lookup_equals_that_of_a_dictionary(fields: dict[str, str], name: str) -> None:
    expected = {key: value.encode("latin-1", "replace").decode("latin-1") for key, value in fields.items()}
    headers = Headers({key.encode("latin-1"): value.encode("latin-1") for key, value in expected.items()})
    assert (name in headers, headers.get(name)) == (name in expected, expected.get(name))
    assert dict(headers) == expected

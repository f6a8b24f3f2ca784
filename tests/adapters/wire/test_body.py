"""Top-level fields of a JSON body."""

import json

import pytest

from adapters.errors import CallerError
from adapters.wire.body import MAX_FIELDS, open_body


def body(count: int) -> bytes:
    return json.dumps({f"f{place}": place for place in range(count)}).encode()


def test_a_body_has_at_most_so_many_fields() -> None:
    assert len(open_body(body(MAX_FIELDS))) == MAX_FIELDS
    with pytest.raises(CallerError, match=r"The body has 1,025 fields\. Send at most 1,024\.") as raised:
        open_body(body(MAX_FIELDS + 1))
    assert raised.value.code == "too_many_fields"

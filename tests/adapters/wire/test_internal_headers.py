from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.internal_headers import PRIORITIES, InternalHeaders, decode, encode


@given(
    st.text("abcXYZ09._:/-", max_size=20), st.floats(1e-3, 1e6), st.sampled_from(list(PRIORITIES)), st.floats(1e-3, 1e9)
)
def test_headers_survive_encoding_and_decoding(tenant: str, share: float, priority: str, seconds: float) -> None:
    decoded = decode(dict(encode(tenant, share, priority, seconds, "salt")))
    assert (decoded.tenant, decoded.priority, decoded.salt) == (tenant, PRIORITIES[priority], "salt")
    assert decoded.share == pytest.approx(share, rel=1e-5)
    assert decoded.seconds == pytest.approx(seconds, abs=1e-3)


def test_absent_headers_have_defaults() -> None:
    assert decode({}) == InternalHeaders("", 1.0, None, inf)


@pytest.mark.parametrize("field", ["share", "timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "", "many"])
def test_a_malformed_number_is_refused(field: str, value: str) -> None:
    with pytest.raises(CallerError, match=f"x-headrace-{field}"):
        decode({f"x-headrace-{field}": value})


def test_priorities_have_names() -> None:
    with pytest.raises(CallerError, match="high, normal, low"):
        decode({"x-headrace-priority": "urgent"})

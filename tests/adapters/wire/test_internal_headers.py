from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.internal_headers import PRIORITIES, InternalHeaders, decode, encode


@given(
    st.text("abcXYZ09._:/-", max_size=20), st.floats(1e-3, 1e6), st.sampled_from(list(PRIORITIES)), st.floats(1e-3, 1e9)
)
def test_what_is_written_is_read(tenant: str, share: float, priority: str, seconds: float) -> None:
    told = decode(dict(encode(tenant, share, priority, seconds, "salt")))
    assert (told.tenant, told.priority, told.salt) == (tenant, PRIORITIES[priority], "salt")
    assert told.share == pytest.approx(share, rel=1e-5)
    assert told.seconds == pytest.approx(seconds, abs=1e-3)


def test_nothing_said() -> None:
    assert decode({}) == InternalHeaders("", 1.0, None, inf)


@pytest.mark.parametrize("field", ["share", "timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "", "many"])
def test_what_is_no_number_is_refused(field: str, value: str) -> None:
    with pytest.raises(CallerError, match=f"x-headrace-{field}"):
        decode({f"x-headrace-{field}": value})


def test_priorities_have_names() -> None:
    with pytest.raises(CallerError, match="high, normal, low"):
        decode({"x-headrace-priority": "urgent"})

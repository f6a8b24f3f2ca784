from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.pattern import DAY, HOUR, WEEK, expects


@given(st.integers(500_000, 600_000), st.floats(0, HOUR - 1), st.floats(0, 1800), st.sampled_from([DAY, WEEK]))
def test_an_hour_is_expected_from_its_lead_to_its_end(hour: int, into: float, lead: float, before: int) -> None:
    used = {hour - before}
    assert expects(used, hour * HOUR + into, lead)
    assert expects(used, hour * HOUR - lead, lead)
    assert not expects(used, hour * HOUR - lead - 1, lead)
    assert not expects(used, (hour + 1) * HOUR, lead)
    assert not expects({hour - before - 1, hour - before + 2}, hour * HOUR + into, min(lead, HOUR - 1 - into))

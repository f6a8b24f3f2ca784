import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth import changes as changes_of_keys
from gateway.auth.changes import Overlay

KEYS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(KEYS, st.none() | st.integers(0, 9), max_size=4)


@given(under=st.dictionaries(KEYS, st.integers(0, 9)), changes=st.lists(CHANGES, max_size=8), most=st.integers(0, 5))
def test_an_overlay_is_a_mapping_with_unchanged_earlier_states(
    under: dict[str, int], changes: list[dict[str, int | None]], most: int
) -> None:
    states: list[tuple[Overlay[int], dict[str, int]]] = [(Overlay(dict(under)), under)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_of_keys, "MOST_CHANGES", most)
        for change in changes:
            seen, expected = states[-1]
            merged = {key: value for key, value in {**expected, **change}.items() if value is not None}
            states.append((seen.changed(change), merged))
    for seen, expected in states:
        assert dict(seen) == expected
        assert len(seen) == len(expected)
        assert [seen.get(key) for key in "abcdef"] == [expected.get(key) for key in "abcdef"]
        assert [key in seen for key in "abcdef"] == [key in expected for key in "abcdef"]

"""The offset of a partition moves over ended messages only, in whatever order they end."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.brokers.kafka import OffsetWindow


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_no_offset_of_a_message_in_work_is_committed(gaps: list[int], rng: object) -> None:
    offsets, at = [], 0
    for gap in gaps:
        at += gap
        offsets.append(at)
    window, in_work = OffsetWindow(offsets[0]), set(offsets)
    for offset in offsets:
        window.begin(offset)
    ends = list(offsets)
    rng.shuffle(ends)  # type: ignore[attr-defined]
    for offset in ends:
        before = window.next
        moved = window.end(offset)
        in_work.discard(offset)
        assert moved == (window.next > before)
        lowest = min(in_work, default=offsets[-1] + 1)
        done = [each for each in offsets if each < lowest]
        assert window.next == (done[-1] + 1 if done else offsets[0])
        assert window.size == sum(each >= lowest for each in offsets)

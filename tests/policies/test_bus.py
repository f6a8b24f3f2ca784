"""Messages of brokers: their order by key, and the topics of answers."""

from hypothesis import given
from hypothesis import strategies as st

from config.schema.bus import ReplyConfig
from policies.batches.admission import PoolLoad
from policies.bus import KeyOrder, ReplyTopics, room_of

KEYS = st.sampled_from([b"a", b"b", b"c"])


@given(st.lists(st.one_of(KEYS, st.integers(0, 10)), max_size=80))
def test_each_key_has_one_running_item_and_no_item_is_lost(steps: list[bytes | int]) -> None:
    order, running, waiting, ended = KeyOrder[int](), dict[bytes, int](), dict[bytes, list[int]](), list[int]()
    for number, step in enumerate(steps):
        if isinstance(step, bytes):
            if order.begin(step, number):
                assert step not in running
                running[step] = number
            else:
                assert step in running
                waiting.setdefault(step, []).append(number)
        elif running:
            key = sorted(running)[step % len(running)]
            ended.append(running.pop(key))
            following = order.end(key)
            expected = waiting.get(key, [])
            assert following == (expected.pop(0) if expected else None)
            if following is not None:
                running[key] = following
    while running:
        key = next(iter(running))
        ended.append(running.pop(key))
        if (following := order.end(key)) is not None:
            running[key] = following
    assert sorted(ended) == [number for number, step in enumerate(steps) if isinstance(step, bytes)]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3), st.integers(0, 50), st.integers(1, 50))
def test_no_message_is_read_without_a_free_place(
    capacity: int, in_flight: int, waiting: int, in_work: int, concurrency: int
) -> None:
    room = room_of(PoolLoad(capacity, in_flight, waiting), in_work, concurrency)
    assert room >= 0
    assert not room or (not waiting and in_flight + room <= capacity and in_work + room <= concurrency)
    if not waiting and in_flight < capacity and in_work < concurrency:
        assert room > 0


@given(st.text(max_size=40))
def test_no_message_names_a_topic_beyond_the_binding(requested: str) -> None:
    topics = ReplyTopics(ReplyConfig(topic="answers", allowed=("team.*", "one")))
    topic = topics.of(requested)
    assert topic in ("answers", "one", None) or (topic == requested and requested.startswith("team."))
    assert ReplyTopics(ReplyConfig(topic="answers")).of(requested) in ("answers", None)


def test_the_topic_of_the_binding_is_the_default() -> None:
    topics = ReplyTopics(ReplyConfig.model_validate("answers"))
    assert (topics.of(None), topics.of(""), topics.of("answers"), topics.of("x")) == (
        "answers",
        "answers",
        "answers",
        None,
    )

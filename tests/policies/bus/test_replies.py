"""A message chooses among the topics of its binding only."""

from hypothesis import given
from hypothesis import strategies as st

from config.schema.bus import ReplyConfig
from policies.bus.replies import ReplyTopics


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

"""What a broker receives in the place of a message that it rejects."""

import logging

from adapters.brokers.base import (
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    TopicRefused,
)
from adapters.errors import BackendError
from config.schema.bus import BindingConfig
from gateway.features.bus.answers import AnswerMessages, is_dead_letter
from gateway.features.bus.running import MessageRunner
from gateway.features.bus.work import DeadReason, MessageEnd

log = logging.getLogger(__name__)


class Replacements:
    """The replacements of one binding."""

    def __init__(self, binding: BindingConfig, writer: AnswerMessages, runner: MessageRunner) -> None:
        self._own = {binding.reply.topic, binding.dead_letters}
        self._writer = writer
        self._runner = runner

    def waits(self, message: BrokerMessage, end: PublishEnd) -> PublishEnd:
        """A refused topic of the configuration is mended by an operator: its messages wait."""
        if isinstance(end, TopicRefused) and message.topic in self._own:
            return BrokerUnavailable(str(end))
        return end

    def of(self, end: MessageEnd, message: BrokerMessage, rejection: MessageRejected) -> MessageEnd:
        """The end after a message that the broker rejects, with messages in its place: smaller ones, or for another
        topic."""
        delivery = end.deliveries[0]
        if isinstance(rejection, MessageUnroutable | TopicRefused) and not is_dead_letter(message):
            return self._of_topic(end, message, rejection)
        if end.dead is not None:
            return end._replace(messages=(self._writer.dead(delivery, end.dead, whole=False),))
        assert end.work is not None
        log.warning("bus: the answer to %s is rejected: %s", delivery.place, rejection)
        error = BackendError(
            "The broker rejects the answer, for example because it is too large.", code="answer_rejected"
        )
        return self._runner.failed(end.work, error, "")

    def _of_topic(self, end: MessageEnd, message: BrokerMessage, rejection: MessageRejected) -> MessageEnd:
        """A dead letter in the place of an answer; nothing in the place of an error, which has a dead letter."""
        log.warning("bus: the answer to %s cannot be published: %s", end.deliveries[0].place, rejection)
        if end.dead is not None:
            return end._replace(messages=())
        if isinstance(rejection, TopicRefused):
            reason = DeadReason("reply_topic_refused", f"The broker refuses the message's `replyto`: {rejection}")
        else:
            reason = DeadReason("answer_unroutable", f"Nothing reads the topic {message.topic} of the answer.")
        return end._replace(outcome="dead", dead=reason, messages=(self._writer.dead(end.deliveries[0], reason),))

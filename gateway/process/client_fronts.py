"""The fronts of a gateway: those of the APIs, and those of the features."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.fronts.door import Door
from gateway.fronts.listener import Front, Fronts, LateFront
from gateway.fronts.paths import BATCHES, CONVERSATIONS, FEEDBACK, FILES, MESSAGE_BATCHES
from gateway.request.core import Core

if TYPE_CHECKING:  # a front is imported with the first request to its paths
    from gateway.features.batches.service import BatchService
    from gateway.features.experiments.inbox import FeedbackInbox
    from gateway.features.stored.keeper import Keeper


def _nothing() -> None:
    return None


def client_fronts(
    core: Core,
    ready: Callable[[], bool] = lambda: True,
    keeper: "Callable[[], Keeper | None]" = _nothing,
    inbox: "Callable[[], FeedbackInbox | None]" = _nothing,
    batches: "Callable[[], BatchService | None]" = _nothing,
) -> Fronts:
    """The handler of the data listener. A feature without its object answers that it is not configured."""
    door = Door(core)

    def responses() -> Front:
        from gateway.features.stored.stored_responses import StoredResponses
        from gateway.fronts.responses import ResponsesFront

        return ResponsesFront(door, StoredResponses(door, keeper()))

    def conversations() -> Front:
        from gateway.features.stored.conversations import ConversationsFront

        return ConversationsFront(door, keeper())

    def message_batches() -> Front:
        from gateway.features.batches.fronts.anthropic import MessageBatchesFront

        return MessageBatchesFront(door, batches())

    def feedback() -> Front:
        from gateway.features.experiments.feedback_front import FeedbackFront

        return FeedbackFront(door, inbox())

    def files() -> Front:
        from gateway.features.batches.fronts.files import FilesFront

        return FilesFront(door, batches())

    def openai_batches() -> Front:
        from gateway.features.batches.fronts.openai import BatchesFront

        return BatchesFront(door, batches())

    features = {
        CONVERSATIONS: conversations,
        MESSAGE_BATCHES: message_batches,
        FEEDBACK: feedback,
        FILES: files,
        BATCHES: openai_batches,
    }
    return Fronts(door, ready, responses, tuple((prefix, LateFront(make)) for prefix, make in features.items()))

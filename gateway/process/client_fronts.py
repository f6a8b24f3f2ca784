"""The fronts of a gateway: those of the APIs, and those of the features."""

from collections.abc import Callable

from gateway.features.batches.fronts.anthropic import PATH as MESSAGE_BATCHES
from gateway.features.batches.fronts.anthropic import MessageBatchesFront
from gateway.features.batches.fronts.files import PATH as FILES
from gateway.features.batches.fronts.files import FilesFront
from gateway.features.batches.fronts.openai import PATH as BATCHES
from gateway.features.batches.fronts.openai import BatchesFront
from gateway.features.batches.service import BatchService
from gateway.features.experiments.feedback_front import PATH as FEEDBACK
from gateway.features.experiments.feedback_front import FeedbackFront
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.stored.conversations import PATH as CONVERSATIONS
from gateway.features.stored.conversations import ConversationsFront
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.stored_responses import StoredResponses
from gateway.fronts.door import Door
from gateway.fronts.listener import Front, Fronts
from gateway.fronts.responses import ResponsesFront
from gateway.request.core import Core


def client_fronts(
    core: Core,
    ready: Callable[[], bool] = lambda: True,
    keeper: Keeper | None = None,
    inbox: FeedbackInbox | None = None,
    batches: BatchService | None = None,
) -> Fronts:
    """The handler of the data listener. A feature without its object answers that it is not configured."""
    door = Door(core)
    features: tuple[tuple[bytes, Front], ...] = (
        (CONVERSATIONS, ConversationsFront(door, keeper)),
        (MESSAGE_BATCHES, MessageBatchesFront(door, batches)),
        (FEEDBACK, FeedbackFront(door, inbox)),
        (FILES, FilesFront(door, batches)),
        (BATCHES, BatchesFront(door, batches)),
    )
    return Fronts(door, ready, ResponsesFront(door, StoredResponses(door, keeper)), features)

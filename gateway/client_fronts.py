"""The fronts of a gateway: those of the APIs, and those of the features."""

from collections.abc import Callable

from gateway.batches.service import BatchService
from gateway.experiments.inbox import FeedbackInbox
from gateway.fronts.batches.anthropic import PATH as MESSAGE_BATCHES
from gateway.fronts.batches.anthropic import MessageBatchesFront
from gateway.fronts.batches.files import PATH as FILES
from gateway.fronts.batches.files import FilesFront
from gateway.fronts.batches.openai import PATH as BATCHES
from gateway.fronts.batches.openai import BatchesFront
from gateway.fronts.conversations import PATH as CONVERSATIONS
from gateway.fronts.conversations import ConversationsFront
from gateway.fronts.door import Door
from gateway.fronts.feedback import PATH as FEEDBACK
from gateway.fronts.feedback import FeedbackFront
from gateway.fronts.listener import Front, Fronts
from gateway.fronts.responses import ResponsesFront
from gateway.fronts.stored_responses import StoredResponses
from gateway.request.core import Core
from gateway.stored.keeper import Keeper


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

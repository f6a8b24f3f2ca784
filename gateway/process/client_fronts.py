"""The fronts of a gateway: those of the APIs, and those of the features."""

from collections.abc import Callable

from gateway.fronts.door import Door
from gateway.fronts.listener import Fronts, LateFront
from gateway.fronts.paths import BATCHES, CONVERSATIONS, FEEDBACK, FILES, MESSAGE_BATCHES
from gateway.request.core import Core

Late = Callable[[], object]


def client_fronts(
    core: Core,
    ready: Callable[[], bool] = lambda: True,
    keeper: Late = lambda: None,
    inbox: Late = lambda: None,
    batches: Late = lambda: None,
) -> Fronts:
    """The handler of the data listener. A feature without its object answers that it is not configured.

    `keeper`, `inbox` and `batches` return the `Keeper`, the `FeedbackInbox` and the `BatchService`, or None.
    """
    door = Door(core)

    def own() -> Door:
        return door

    stored = LateFront("gateway.features.stored.stored_responses", "StoredResponses", own, keeper)
    responses = LateFront("gateway.fronts.responses", "ResponsesFront", own, lambda: stored.front)
    rooms = "gateway.features.batches.fronts"
    features = (
        (CONVERSATIONS, LateFront("gateway.features.stored.conversations", "ConversationsFront", own, keeper)),
        (MESSAGE_BATCHES, LateFront(f"{rooms}.anthropic", "MessageBatchesFront", own, batches)),
        (FEEDBACK, LateFront("gateway.features.experiments.feedback_front", "FeedbackFront", own, inbox)),
        (FILES, LateFront(f"{rooms}.files", "FilesFront", own, batches)),
        (BATCHES, LateFront(f"{rooms}.openai", "BatchesFront", own, batches)),
    )
    return Fronts(door, ready, responses, features)

"""The HTTP listener: selects the front of a request by its path."""

import time
from collections.abc import Awaitable, Callable, Iterator

from adapters.http1.message import Request, Response
from gateway.batches.service import BatchService
from gateway.experiments.inbox import FeedbackInbox
from gateway.fronts.anthropic import MODELS, VERSION, AnthropicFront
from gateway.fronts.anthropic import PATH as MESSAGES
from gateway.fronts.apps import PATHS, AppsFront
from gateway.fronts.batches.anthropic import PATH as MESSAGE_BATCHES
from gateway.fronts.batches.anthropic import MessageBatchesFront
from gateway.fronts.batches.files import PATH as FILES
from gateway.fronts.batches.files import FilesFront
from gateway.fronts.batches.openai import PATH as BATCHES
from gateway.fronts.batches.openai import BatchesFront
from gateway.fronts.conversations import PATH as CONVERSATIONS
from gateway.fronts.conversations import ConversationsFront
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.feedback import PATH as FEEDBACK
from gateway.fronts.feedback import FeedbackFront
from gateway.fronts.metadata import Metadata
from gateway.fronts.oip_http import OipFront
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.passed import PassedFront
from gateway.fronts.paths import readdressed
from gateway.fronts.predict_v1 import PredictFront
from gateway.fronts.responses import PATH as RESPONSES
from gateway.fronts.responses import ResponsesFront
from gateway.request.core import Core
from gateway.stored.keeper import Keeper

GENERATION = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"})
"""OpenAI's paths of most requests. Every other path is compared with the prefixes of each front."""


class Fronts:
    """The handler of the data listener. `ready` reports whether the gateway accepts and can answer requests."""

    def __init__(
        self,
        core: Core,
        ready: Callable[[], bool] = lambda: True,
        keeper: Keeper | None = None,
        inbox: FeedbackInbox | None = None,
        door: Door | None = None,
        batches: BatchService | None = None,
    ) -> None:
        self.door = door or Door(core)
        created = int(time.time())
        metadata = Metadata(core)
        self._openai = OpenAIFront(self.door, created)
        self._predict = PredictFront(self.door, metadata, created)
        self._oip = OipFront(self.door, ready)
        self._responses = ResponsesFront(self.door, keeper)
        self._conversations = ConversationsFront(self.door, keeper)
        self._anthropic = AnthropicFront(self.door, created)
        self._feedback = FeedbackFront(self.door, inbox)
        self._files = FilesFront(self.door, batches)
        self._batches = BatchesFront(self.door, batches)
        self._message_batches = MessageBatchesFront(self.door, batches)
        self._fronts = (
            (b"/v2", self._oip),
            (b"/v1/models/", self._predict),
            (RESPONSES, self._responses),
            (CONVERSATIONS, self._conversations),
            (MESSAGE_BATCHES, self._message_batches),
            (MESSAGES, self._anthropic),
            (FEEDBACK, self._feedback),
            (FILES, self._files),
            (BATCHES, self._batches),
        )
        self._apps = AppsFront(self.door)
        self._passed = PassedFront(self.door)

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        if http.target in GENERATION:
            return self._openai(http)
        http = readdressed(http)
        if http.target.startswith(MODELS) and VERSION in http.headers:
            return self._anthropic(http)
        if self._passed.serves(http.target):
            return self._passed(http)
        for prefix, front in self._fronts:
            if http.target.startswith(prefix):
                return front(http)
        if http.target.startswith(PATHS):
            return self._apps(http)
        return self._openai(http)

    def routes(self) -> Iterator[DoorPath]:
        """The routes of all fronts."""
        yield from self._openai.routes()
        yield from self._oip.routes()
        yield from self._predict.routes()
        yield from self._responses.routes()
        yield from self._conversations.routes()
        yield from self._feedback.routes()
        yield from self._files.routes()
        yield from self._batches.routes()
        yield from self._message_batches.routes()
        yield from self._apps.routes()
        yield from self._anthropic.routes()
        yield from self._passed.routes()

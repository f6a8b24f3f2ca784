"""Examines texts with the model of a guard."""

import asyncio
import math
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from adapters.errors import BackendError, ContentFiltered, InferenceError, StepFailed
from adapters.requests import ModelRequest
from adapters.tensors import Inference
from adapters.wire.openai import chat as openai
from config.schema.pipelines.leaves import GuardConfig
from gateway.features.pipelines.answers import values_of
from gateway.features.pipelines.conditions import Condition
from gateway.features.pipelines.model import described
from gateway.features.pipelines.scope import Bound, Estimate, StepScope
from gateway.features.pipelines.values import UnusableValueError, tensor_of
from policies.limits.price import OUTPUT_ESTIMATE
from policies.pipelines.window import CHARACTERS_PER_TOKEN, windows_of

AT_ONCE = 8
"""Windows of one text that are examined at the same time."""
MAX_CHARACTERS = 4 * 1024 * 1024
"""Characters of one request or answer that are examined."""
BLOCKED = "A guard of this model blocked the content."

_encode = msgspec.json.Encoder().encode


class Examiner:
    """Sends windows of a text to the guard's model and evaluates its condition. Raises `ContentFiltered`."""

    def __init__(self, config: GuardConfig, condition: Condition, *, takes_tensors: bool) -> None:
        self.window = config.window * CHARACTERS_PER_TOKEN
        self.overlap = config.overlap * CHARACTERS_PER_TOKEN
        self._model = config.model
        self._condition = condition
        self._takes_tensors = takes_tensors
        self._input = config.input

    async def examine(self, texts: Iterable[str], scope: StepScope) -> None:
        """Examine whole texts. Raises `ContentFiltered` if one is blocked, and the failures of the model."""
        windows = [window for text in texts for window in windows_of(text, self.window, self.overlap)]
        if sum(map(len, windows)) > 2 * MAX_CHARACTERS:
            raise StepFailed(f"The text is larger than the guard `{scope.path}` examines.", step=scope.path)
        places = asyncio.Semaphore(AT_ONCE)

        async def one(window: str) -> None:
            async with places:
                await self.examine_window(window, scope)

        try:
            async with asyncio.TaskGroup() as group:
                for window in windows:
                    group.create_task(one(window))
        except BaseExceptionGroup as failures:
            blocks = (error for error in failures.exceptions if isinstance(error, ContentFiltered))
            raise next(blocks, failures.exceptions[0]) from None

    async def examine_released(self, text: str, scope: StepScope, *, tolerant: bool) -> None:
        """Examine a text of a stream before its release, window by window, and record a block in the step's trace.

        A `tolerant` guard lets the text pass while its model fails. Raises `ContentFiltered` if the text is blocked.
        """
        try:
            await self.examine([text], scope)
        except ContentFiltered:
            if scope.call.step is not None:
                scope.call.step.blocked = True
            raise
        except InferenceError:
            if not tolerant:
                raise

    async def examine_window(self, text: str, scope: StepScope) -> None:
        """Examine one window. Raises `ContentFiltered` if it is blocked, and the failures of the model."""
        models, call = scope.call.models, scope.call.part()
        assert models is not None
        answer = await models.call(self._model, await self._request(text, scope), call)
        if await self._condition.holds(scope, await values_of(answer)):
            raise ContentFiltered(BLOCKED)

    async def _request(self, text: str, scope: StepScope) -> ModelRequest:
        if not self._takes_tensors:
            fields = {"model": self._model, "messages": [{"role": "user", "content": text}]}
            return openai.chat_request({name: Raw(_encode(value)) for name, value in fields.items()}, 0)
        declared = (await described(self._model, scope)).inputs if self._input is None else []
        inputs = [tensor for tensor in declared if tensor.datatype == "BYTES"]
        if self._input is None and len(inputs) != 1:
            raise BackendError(f"The model `{self._model}` has {len(inputs)} inputs of BYTES: name one as `input`.")
        name = self._input or inputs[0].name
        try:
            tensor = tensor_of(name, text, inputs[0] if inputs else None)
        except UnusableValueError as error:
            raise scope.fail(error) from None
        return await scope.request.infer(self._model, Inference(self._model, inputs=[tensor]))

    def bound(self, estimate: Estimate, tokens: int, texts: int) -> Bound:
        """The bound of all windows of texts with so many tokens. Texts of tensors have an unknown number, so none."""
        window, step = self.window // CHARACTERS_PER_TOKEN, (self.window - self.overlap) // CHARACTERS_PER_TOKEN
        count = max(texts, 1) + math.ceil(tokens / step)
        prompt, output = (0, 0) if self._takes_tensors else (window, OUTPUT_ESTIMATE)
        return estimate.of_text(prompt, output)(self._model).times(count)

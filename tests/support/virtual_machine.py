"""A state machine of Hypothesis on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import looptime
from hypothesis.stateful import RuleBasedStateMachine

T = TypeVar("T")


class VirtualMachine(RuleBasedStateMachine):
    """Its rules run on a loop of its own, which the machine's teardown closes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop()

    def run(self, coroutine: Coroutine[None, None, T]) -> T:
        result: T = self.loop.run_until_complete(coroutine)
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop."""

        async def called() -> T:
            return function()

        return self.run(called())

    def pause(self, seconds: float) -> None:
        async def paused() -> None:
            await asyncio.sleep(seconds)

        self.run(paused())

    def teardown(self) -> None:
        try:
            self.check_end()
        finally:
            self.loop.close()

    def check_end(self) -> None:
        """What holds after the last rule."""

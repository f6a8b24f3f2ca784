"""The number of prompt tokens that a step computes beside sequences that decode.

All sequences of a step wait for its end, so a chunk of a prompt lengthens the gap between two tokens of every sequence
that decodes beside it. The budget is a time: the engine reports how long each step lasted, and a chunk has as many
tokens as the target allows. Results do not depend on the cuts of a prompt, so the measured time changes no answer.

The target trades gaps for first tokens. With N requests in flight and a completion every T seconds, a request takes
N · T seconds (Little's law), so time that decoding gains, the wait for the first token loses. The target therefore
grows with that wait.
"""

SMALLEST_SHARE = 8
"""A chunk has at least one part in so many of `max_tokens`, so that a prompt advances on a slow machine too."""

WAIT_SHARE = 1 / 50
"""The part of a prompt's wait that a step may last."""
LONGEST = 2
"""The longest step for that reason, in targets: ten tokens a second, faster than people read."""

BRIEF_SHARE = 0.5
"""The part of a step's time that background work takes while live requests come."""

_RATE = 0.5
_LONG = 64
"""Prompt tokens from which a step measures the cost of one: the cost of a shorter step is that of reading the weights.
"""


class StepBudget:
    """`max_tokens` bounds every step, `seconds` the steps in which sequences decode. It has no clock.

    A step may last longer, up to the greater of two bounds: twice as long as a step without prompts, so that a model
    whose decode step exceeds `seconds` computes prompts at half of its speed; and WAIT_SHARE of the time that a prompt
    has waited, up to LONGEST times `seconds`.
    """

    def __init__(self, max_tokens: int, seconds: float) -> None:
        self._max_tokens = max_tokens
        self._seconds = seconds
        self._decode = 0.0  # seconds of a step without prompts
        self._decodes = 0.0  # its sequences
        self._token = 0.0  # seconds that a prompt token adds to a step

    def prompt_tokens(self, decodes: int, waited: float = 0.0) -> int:
        """Prompt tokens of the next step, in which `decodes` sequences decode and may slow down for a prompt that has
        `waited` so many seconds."""
        most = self._max_tokens - decodes
        if not decodes or not self._token:
            return most
        target = max(self._seconds, min(waited * WAIT_SHARE, LONGEST * self._seconds))
        left = max(target, 2 * self._decode) - self._decode
        least = max(1, self._max_tokens // SMALLEST_SHARE)
        return min(most, max(least, int(left / self._token)))

    def brief_decodes(self) -> int:
        """Sequences of background work that may decode in a brief step."""
        if not self._decode:
            return self._max_tokens
        return max(1, int(BRIEF_SHARE * self._seconds * self._decodes / self._decode))

    def brief_prompt_tokens(self, decodes: int) -> int:
        """Prompt tokens of a step of background work, which a live prompt may have to wait for: the step takes no
        longer than BRIEF_SHARE of the usual time, as far as the smallest chunk allows."""
        most = self._max_tokens - decodes
        left = BRIEF_SHARE * self._seconds - (self._decode if decodes else 0.0)
        least = max(1, self._max_tokens // (2 * SMALLEST_SHARE))
        return min(most, max(least, int(left / self._token) if self._token else least))

    def measured(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
        """A step of so many sequences that decode and so many prompt tokens lasted `seconds`."""
        if seconds <= 0:
            return
        if not prompt_tokens:
            self._decode = _moved(self._decode, seconds, _RATE)
            self._decodes = _moved(self._decodes, decodes, _RATE)
            return
        # The decode step was measured with other sequences: it never explains more than three quarters of this one.
        added = seconds - min(self._decode, 0.75 * seconds) if decodes else seconds
        self._token = _moved(self._token, added / prompt_tokens, _RATE * min(1.0, prompt_tokens / _LONG))


def _moved(mean: float, value: float, rate: float) -> float:
    """The exponential moving average; the first value begins it."""
    return mean + rate * (value - mean) if mean else value

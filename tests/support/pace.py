"""The pace of this machine, for bounds on the time that a computation takes."""

import json
import time
from typing import Any

_DOCUMENT = json.dumps([{"id": number, "text": "x" * 100, "scores": [0.5] * 8} for number in range(2000)])
_BYTES = bytes(8 << 20)
_USUAL_SECONDS = 0.006
"""The CPU time of the reference on the machine on which the bounds were set."""


def slowness() -> float:
    """How many times longer than usual this machine computes at present: at least 1.

    The reference copies memory, parses JSON and runs bytecode, as a turn of an event loop does. The best of several
    counts, as the bounded computation is also tried several times or bounded far above its usual time.
    """
    return max(1.0, min(_reference() for _ in range(5)) / _USUAL_SECONDS)


def _reference() -> float:
    began = time.thread_time()
    parsed: list[dict[str, Any]] = json.loads(_DOCUMENT)
    total = 0
    for element in parsed:
        for score in element["scores"]:
            total += score > 0.1
    assert total == 16_000
    assert len(bytearray(_BYTES)) == len(_BYTES)
    return time.thread_time() - began

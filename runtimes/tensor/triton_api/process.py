"""The process of one model: its connection, and the facts that its server has sent."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from runtimes.tensor.requests.messages import ModelMessage
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.errors import TritonModelException

connection: RequestChannel | None = None
description = ""
"""The configuration of the model in Triton's JSON."""
folder = Path()
"""The folder of the version."""
instance = ""
executing = False
"""Whether the model is initialized and not finalized."""
executor = 0
"""The thread in which `execute` runs; 0 while it does not run."""
calls: dict[int, deque[ModelMessage]] = {}
"""Responses that have arrived, by the number of the model's request."""


def channel() -> RequestChannel:
    """Raises `TritonModelException` where there is no server, as in `auto_complete_config`."""
    if connection is None:
        raise TritonModelException("the server cannot be reached from here")
    return connection

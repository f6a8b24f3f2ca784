"""The sum and the difference, as a handler of TorchServe: a list of requests in, a list of answers out."""

from typing import Any

import numpy as np


def handle(requests: list[dict[str, Any]] | None, context: object) -> list[dict[str, Any]]:
    if requests is None:  # called once before the first request
        return []
    bodies = [request["body"] for request in requests]
    one = np.array([body["INPUT0"] for body in bodies], dtype=np.int32)
    other = np.array([body["INPUT1"] for body in bodies], dtype=np.int32)
    sums, differences = (one + other).tolist(), (one - other).tolist()
    return [{"OUTPUT0": plus, "OUTPUT1": minus} for plus, minus in zip(sums, differences, strict=True)]

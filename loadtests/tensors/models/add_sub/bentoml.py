"""The sum and the difference, as a service of BentoML with adaptive batching, which takes one argument."""

import bentoml
import numpy as np


@bentoml.service(workers=1)
class AddSub:
    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=1000)
    def infer(self, rows: np.ndarray) -> np.ndarray:
        pairs = rows.astype(np.int32)
        return np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)

"""The speed of ONNX Runtime without a server: batches in a loop, one thread, for some seconds."""

import json
import statistics
import sys
import time

import numpy as np
import onnxruntime


def main() -> None:
    """`MODEL REQUESTS BATCH SECONDS` → one JSON line: rows a second, and the time of a batch."""
    model, requests, batch, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    with open(requests) as file:
        rows = [one["bytes"]["content"] for one in json.load(file)["data"]]
    inputs = {"bytes": np.array(rows[:batch], dtype=np.int32)}
    session.run(None, inputs)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(took) < 2:
        session.run(None, inputs)
        took.append(time.perf_counter() - began)
    percentiles = statistics.quantiles(took, n=100)
    print(
        json.dumps(
            {"rps": batch * len(took) / sum(took), "p50_ms": 1e3 * percentiles[49], "p99_ms": 1e3 * percentiles[98]}
        )
    )


if __name__ == "__main__":
    main()

"""Silero's voice activity detector, 16 kHz: 32 ms of sound in, the probability of speech out.

The state of a stream is an input and an output, so that requests of many streams share a batch and the runtime stores
the state of each.
"""

from pathlib import Path

import numpy as np
import onnxruntime

RATE = np.array(16_000, np.int64)


class Model:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = Path(__file__).with_name("silero_vad.onnx")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`audio` [B, 512], `context` [B, 64] and `state` [B, 2, 128]; the model itself has the batch second."""
        sound = np.concatenate([inputs["context"], inputs["audio"]], axis=1)
        state = np.ascontiguousarray(inputs["state"].transpose(1, 0, 2))
        speech, state = self._session.run(None, {"input": sound, "state": state, "sr": RATE})
        return {"speech": speech, "next_state": state.transpose(1, 0, 2), "next_context": sound[:, -64:]}

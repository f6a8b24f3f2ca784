"""Detects the parts of a sound that have speech."""

from pathlib import Path

import numpy as np
import onnxruntime

RATE, STEP, CONTEXT = 16_000, 512, 64
THRESHOLD = 0.5
PAUSE = 4
"""Steps of 32 ms without speech that end a part."""


class Model:
    def __init__(self, folder: Path) -> None:
        """`folder` is that of the version; `silero-vad` is beside the model's folder."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = folder.parents[1] / "silero-vad" / "1" / "silero_vad.onnx"
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`audio` [1, samples] → `parts` [N, 2] in seconds."""
        steps = parts_of(np.array(self._speech(inputs["audio"])) > THRESHOLD)
        return {"parts": np.array(steps, np.float32).reshape(-1, 2) * STEP / RATE}

    def _speech(self, audio: np.ndarray) -> list[float]:
        """The probability of speech in each step of 32 ms; the last step is filled with silence."""
        audio = np.pad(audio, ((0, 0), (CONTEXT, -audio.shape[1] % STEP)))
        state, rate, found = np.zeros((2, 1, 128), np.float32), np.array(RATE, np.int64), []
        for at in range(CONTEXT, audio.shape[1], STEP):
            given = {"input": audio[:, at - CONTEXT : at + STEP], "state": state, "sr": rate}
            speech, state = self._session.run(None, given)
            found.append(float(speech[0, 0]))
        return found


def parts_of(speech: np.ndarray) -> list[tuple[int, int]]:
    """The begin and the end of each part, in steps."""
    parts: list[tuple[int, int]] = []
    for step in np.flatnonzero(speech).tolist():
        if parts and step - parts[-1][1] < PAUSE:
            parts[-1] = parts[-1][0], step + 1
        else:
            parts.append((step, step + 1))
    return parts

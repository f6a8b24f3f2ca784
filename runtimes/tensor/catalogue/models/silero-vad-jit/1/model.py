"""Silero's voice activity detector as TorchScript, which stores the state of its stream inside.

So one copy has one stream at a time: the runtime reports when another begins.
"""

from pathlib import Path

import numpy as np
import torch


class Model:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._model = torch.jit.load(Path(__file__).with_name("silero_vad.jit"), map_location="cpu").eval()

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`audio` [1, 512], and `START` [1, 1], which is 1 where a stream begins."""
        if inputs["START"].any():
            self._model.reset_states()
        with torch.inference_mode():
            return {"speech": self._model(torch.from_numpy(inputs["audio"].copy()), 16_000).numpy()}

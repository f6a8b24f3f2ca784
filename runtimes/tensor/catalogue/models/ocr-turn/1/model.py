"""Turns lines of text that are upside down."""

import numpy as np


class Model:
    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`line` [B, 3, 48, W] with padding right of `width` [B, 1], `scores` [B, 2] of upright and upside down."""
        lines = inputs["line"].copy()
        for line, width, scores in zip(lines, inputs["width"][:, 0], inputs["scores"], strict=True):
            if scores[1] > scores[0]:
                line[:, :, :width] = line[:, ::-1, :width][:, :, ::-1]
        return {"line": lines}

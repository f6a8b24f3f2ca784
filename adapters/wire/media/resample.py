"""Changes the sampling rate of sound."""

from math import gcd

import numpy as np
from numpy.typing import NDArray

_CROSSINGS = 16
"""Zero crossings of the kernel on each side."""
_BLOCK = 1024 * 1024
"""Products of samples and weights that are computed at once."""


def resample(samples: NDArray[np.float32], rate: int, target: int) -> NDArray[np.float32]:
    """Samples [channels, n] at another rate, by a sinc kernel with a Hann window.

    The kernel removes frequencies that the new rate cannot represent (Smith, Digital Audio Resampling,
    https://ccrma.stanford.edu/~jos/resample/). The result has ceil(n · target / rate) samples.
    """
    if rate == target or not samples.shape[1]:
        return samples
    up, down = target // gcd(rate, target), rate // gcd(rate, target)
    weights, reach = _weights(up, down)
    count = -(-samples.shape[1] * up // down)
    padded = np.pad(samples, ((0, 0), (reach, reach + 1)))
    result = np.empty((samples.shape[0], count), np.float32)
    taps, step = np.arange(1, 2 * reach + 1), max(_BLOCK // (2 * reach), 1)
    for begin in range(0, count, step):
        places = np.arange(begin, min(begin + step, count)) * down
        taken = padded[:, (places // up)[:, None] + taps]
        result[:, begin : begin + len(places)] = np.einsum("ctk,tk->ct", taken, weights[places % up])
    return result


def _weights(up: int, down: int) -> tuple[NDArray[np.float32], int]:
    """The kernel for each of the `up` phases of a new sample between two old ones, and its reach in old samples."""
    cutoff = min(1.0, up / down)
    reach = int(np.ceil(_CROSSINGS / cutoff))
    offsets = np.arange(-reach + 1, reach + 1)
    weights = np.empty((up, 2 * reach), np.float32)
    for begin in range(0, up, 4096):
        phases = np.arange(begin, min(begin + 4096, up)) / up
        distance = phases[:, None] - offsets
        window = np.cos(np.pi * np.clip(distance / reach, -1, 1) / 2) ** 2
        weights[begin : begin + 4096] = cutoff * np.sinc(cutoff * distance) * window
    return weights, reach

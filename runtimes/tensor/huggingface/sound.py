"""Speech as text. A row is a WAV file, or samples with their rate; both are brought to the rate of the model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from adapters.errors import CallerError, TooLarge
from adapters.wire.media.sound import MAX_RATE, MAX_SAMPLES, MIN_RATE, SoundOptions, decode_wav, resample
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.rows import PipelineTask, column, json_of, named
from runtimes.tensor.interfaces import Array, Tensors

_LEAST: Final = 0.025
"""Seconds of the shortest sound: the window of a spectrum."""


class SpeechRecognition(PipelineTask):
    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self._rate = int(pipe.feature_extractor.sampling_rate)
        # Whisper reads one window, whatever else is in the sound.
        self._most = 0 if settings.chunk_length else getattr(pipe.feature_extractor, "n_samples", 0)

    @property
    def examples(self) -> Sequence[Any]:
        random = np.random.default_rng(3)
        lengths = (self._rate // 2, self._rate)
        return [random.standard_normal(length).astype(np.float32) / 10 for length in lengths]

    def read(self, inputs: Tensors, row: int) -> Any:
        if ("args" in inputs) == ("samples" in inputs):
            raise CallerError("send either `args`, which are WAV files, or `samples`.", param="args")
        if (files := inputs.get("args")) is not None:
            if "rate" in inputs:
                raise CallerError("`rate` is for `samples`: a WAV file has its own.", param="rate")
            samples = np.frombuffer(decode_wav(files[row], SoundOptions(rate=self._rate), "args").data, "<f4")
        else:
            samples = self._resampled(inputs, row)
        seconds = len(samples) / self._rate
        if seconds < _LEAST:
            raise CallerError(f"the sound has {seconds:.3f} s, and {_LEAST} s is the least.")
        if self._most and len(samples) > self._most:
            longest = self._most / self._rate
            raise TooLarge(f"the sound has {seconds:.1f} s, and the model hears {longest:g} s: send parts of it.")
        return samples

    def _resampled(self, inputs: Tensors, row: int) -> Array:
        samples = inputs["samples"][row]
        rate = int(inputs["rate"][row]) if "rate" in inputs else self._rate
        if not MIN_RATE <= rate <= MAX_RATE:
            raise CallerError(f"`rate` is {rate}, and not between {MIN_RATE} and {MAX_RATE}.", param="rate")
        if max(1.0, self._rate / rate) * len(samples) > MAX_SAMPLES:
            raise TooLarge(f"`samples` has more than {MAX_SAMPLES} at the rate of the model.", param="samples")
        if not np.isfinite(samples).all():
            raise CallerError("`samples` has numbers that are not finite.", param="samples")
        made: Array = resample(np.ascontiguousarray(samples[None]), rate, self._rate)[0]
        return made

    def size(self, item: Any) -> Hashable:
        return len(item)

    def cost(self, item: Any) -> int:
        size: int = item.nbytes
        return size

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        cut = {"chunk_length_s": self.settings.chunk_length} if self.settings.chunk_length else {}
        # The pipeline writes to the samples.
        copies = [item.copy() for item in items]
        results: list[Any] = Pipeline.__call__(self.pipe, copies, batch_size=len(items) if together else 1, **cut)
        return results

    def values(self, result: Any) -> Mapping[str, Any]:
        return {"output": json_of(result), "text": result["text"]}

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        return {name: column(named(rows, name), object) for name in ("output", "text")}

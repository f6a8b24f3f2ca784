"""Random ensembles."""

import random

from runtimes.tensor.configuration.model_config import Ensemble, EnsembleStep, ModelConfig, TensorSpec


def random_ensemble(rng: random.Random) -> ModelConfig:
    """An ensemble of models with some inputs and outputs, each of whose tensors is used."""
    tensors = [f"in{i}" for i in range(rng.randint(1, 3))]
    inputs = tuple(TensorSpec(name, "FP32", (2,)) for name in tensors)
    made: list[EnsembleStep] = []
    unused = list(tensors)
    for index in range(rng.randint(1, 7)):
        # Each step reads something that nothing has read before, so that in the end only outputs are unread.
        first = unused.pop(rng.randrange(len(unused))) if unused else rng.choice(tensors)
        others = rng.sample(tensors, rng.randint(0, min(2, len(tensors))))
        read = dict.fromkeys([first, *others])
        unused = [name for name in unused if name not in read]
        written = [f"t{index}.{i}" for i in range(rng.randint(1, 2))]
        made.append(
            EnsembleStep(
                f"m{index}",
                {f"I{i}": name for i, name in enumerate(read)},
                {f"O{i}": name for i, name in enumerate(written)},
            )
        )
        tensors += written
        unused += written
    leftover = [name for name in unused if name.startswith("in")]
    if leftover:
        made.append(EnsembleStep("last", {f"I{i}": name for i, name in enumerate(leftover)}, {"O0": "last"}))
        unused.append("last")
    outputs = tuple(TensorSpec(name, "FP32", (2,)) for name in unused if not name.startswith("in"))
    return ModelConfig("random", "ensemble", inputs, outputs, 8, "ensemble", ensemble=Ensemble(tuple(made)))

"""The mixture of experts of the benchmark is a model that the engine reads, with the words of the bundled one."""

from pathlib import Path

from loadtests.llm.mixture import EXPERTS, USED, write
from loadtests.llm.workloads import vocabulary
from runtimes.llm.weights.gguf_metadata import read_metadata
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.llm.weights.store import resolve


def test_the_mixture_is_read_by_the_engine(tmp_path: Path) -> None:
    bundled = resolve("bundled:smollm2-135m-instruct")
    path = tmp_path / "mixture.gguf"
    write(path, read_metadata(bundled), layers=1)
    shape = open_checkpoint(path).config
    assert shape.experts is not None
    assert (shape.experts.count, shape.experts.chosen, shape.num_layers) == (EXPERTS, USED, 1)
    assert vocabulary(path) == vocabulary(bundled)
    model = load_model(path, weights="int4", native=False)
    assert model.config.experts == shape.experts

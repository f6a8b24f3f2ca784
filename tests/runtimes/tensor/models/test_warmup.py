"""The requests that warm up a copy before it takes traffic."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adapters.tensors import join_bytes
from runtimes.tensor.configuration.model_config import (
    ModelConfig,
    SequenceBatching,
    SequenceControl,
    SequenceState,
    TensorSpec,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.warmup import inputs_of, warm_up
from tests.runtimes.tensor.workshop import FakeInstance

pytestmark = pytest.mark.plain
SPEC = TensorSpec("A", "FP32", (2, -1))


def config_of(*inputs: WarmupInput, batch_size: int = 0, max_batch_size: int = 4) -> ModelConfig:
    specs = tuple(TensorSpec(spec.name, spec.datatype, (-1,) * len(spec.dims)) for spec in inputs)
    warmup = Warmup("first", batch_size, 2, inputs=inputs)
    return ModelConfig("m", "python", specs, max_batch_size=max_batch_size, warmup=(warmup,))


async def test_every_warm_up_runs_as_often_as_configured(tmp_path: Path) -> None:
    instance = FakeInstance("m_0", frozenset(), 0)
    await warm_up(config_of(WarmupInput("A", "FP32", (2, 3)), batch_size=3), instance, tmp_path)
    assert [batch.rows for batch in instance.batches] == [[3], [3]]
    assert instance.batches[0].members[0]["A"].shape == (3, 2, 3)
    assert not instance.batches[0].members[0]["A"].any()


async def test_the_error_of_a_warm_up_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="warm-up `first` failed: not today"):
        await warm_up(
            config_of(WarmupInput("A", "FP32", (2,))), FakeInstance("m_0", frozenset({"refuse"}), 0), tmp_path
        )


def test_without_a_batch_dimension_there_is_none(tmp_path: Path) -> None:
    config = config_of(WarmupInput("A", "INT64", (5,)), max_batch_size=0)
    inputs, rows = inputs_of(config, config.warmup[0], tmp_path)
    assert (inputs["A"].shape, inputs["A"].dtype, rows) == ((5,), np.dtype(np.int64), 1)


@pytest.mark.parametrize("datatype", list(DTYPES))
@pytest.mark.parametrize("data", ["zero", "random"])
def test_every_datatype_can_be_made(tmp_path: Path, datatype: str, data: str) -> None:
    config = config_of(WarmupInput("A", datatype, (3,), data), batch_size=2)
    made = inputs_of(config, config.warmup[0], tmp_path)[0]["A"]
    assert made.shape == (2, 3)
    assert made.dtype == DTYPES[datatype]
    if datatype == "BYTES":
        assert all(isinstance(element, bytes) for element in made.flat)
    if data == "random" and datatype not in ("BOOL", "BYTES"):
        assert made.any()


def test_data_out_of_a_file_is_for_one_row_or_for_all(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    row = np.arange(3, dtype="<f4")
    config = config_of(WarmupInput("A", "FP32", (3,), "file:a"), batch_size=2)
    (tmp_path / "warmup" / "a").write_bytes(row.tobytes())
    assert inputs_of(config, config.warmup[0], tmp_path)[0]["A"].tolist() == [[0, 1, 2], [0, 1, 2]]
    (tmp_path / "warmup" / "a").write_bytes(np.arange(6, dtype="<f4").tobytes())
    assert inputs_of(config, config.warmup[0], tmp_path)[0]["A"].tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "warmup" / "a").write_bytes(b"12345")
    with pytest.raises(ModelLoadError, match="`A` needs 12 bytes for a row, and its file has 5"):
        inputs_of(config, config.warmup[0], tmp_path)


def test_texts_out_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    config = config_of(WarmupInput("A", "BYTES", (2,), "file:a"), batch_size=2)
    (tmp_path / "warmup" / "a").write_bytes(join_bytes([b"one", b""]))
    assert inputs_of(config, config.warmup[0], tmp_path)[0]["A"].tolist() == [[b"one", b""], [b"one", b""]]
    (tmp_path / "warmup" / "a").write_bytes(b"\xff\xff\xff\xff")
    with pytest.raises(ModelLoadError, match="BYTES tensor `A`"):
        inputs_of(config, config.warmup[0], tmp_path)


def test_control_and_state_tensors_of_a_sequence_are_created(tmp_path: Path) -> None:
    config = replace(
        config_of(WarmupInput("A", "FP32", (3,))),
        sequence_batching=SequenceBatching(
            controls=(
                SequenceControl("start", "START", "FP32"),
                SequenceControl("end", "END", "INT32", (7, 8)),
                SequenceControl("ready", "READY", "BOOL"),
                SequenceControl("corrid", "ID", "UINT64"),
            ),
            states=(
                SequenceState("H", "H2", "FP32", (2, -1)),
                SequenceState("I", "I2", "INT32", (2,), np.array([5, 6], "<i4").tobytes()),
                SequenceState("T", "T2", "BYTES", (1,)),
            ),
        ),
    )
    inputs, _ = inputs_of(config, config.warmup[0], tmp_path)
    assert {name: inputs[name].tolist() for name in ("START", "END", "READY", "ID")} == {
        "START": [[1.0]],
        "END": [[7]],
        "READY": [[True]],
        "ID": [[1]],
    }
    assert inputs["H"].shape == (1, 2, 1)
    assert inputs["I"].tolist() == [[5, 6]]
    assert inputs["T"].tolist() == [[b""]]


def test_impossible_warm_ups_are_refused(tmp_path: Path) -> None:
    config = config_of(WarmupInput("A", "FP32", (2,)))
    with pytest.raises(ModelLoadError, match="lacks the input `B`"):
        inputs_of(replace(config, inputs=(*config.inputs, replace(SPEC, name="B"))), config.warmup[0], tmp_path)
    optional = replace(SPEC, name="B", optional=True)
    assert "B" not in inputs_of(replace(config, inputs=(*config.inputs, optional)), config.warmup[0], tmp_path)[0]
    with pytest.raises(ModelLoadError, match="over the model's max_batch_size, 4"):
        inputs_of(config, replace(config.warmup[0], batch_size=5), tmp_path)
    huge = config_of(WarmupInput("A", "FP32", (1 << 20, 1 << 20)))
    with pytest.raises(ModelLoadError, match="larger than 1024 MiB"):
        inputs_of(huge, huge.warmup[0], tmp_path)

"""The outputs that a model may return, and the errors for invalid ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.configuration.model_config import ModelConfig, SequenceBatching, SequenceState, TensorSpec
from runtimes.tensor.instances.runner import Outputs
from runtimes.tensor.interfaces import ModelFailed

pytestmark = pytest.mark.plain
CONFIG = ModelConfig(
    "model",
    "python",
    outputs=(TensorSpec("y", "FP32", (2,)), TensorSpec("t", "BYTES", (-1,))),
    max_batch_size=8,
)
Y = np.zeros((3, 2), np.float32)
T = np.full((3, 1), b"a", dtype=object)


def test_matching_outputs_pass_and_lists_are_converted() -> None:
    got = Outputs(CONFIG).checked({"t": [["å"], [b"b"], ["c"]], "y": [[1, 2]] * 3}, 3)
    assert got["t"].tolist() == [["å".encode()], [b"b"], [b"c"]]
    assert got["y"].dtype == np.float32
    assert Outputs(CONFIG).checked({"y": Y, "t": T}, 3)["y"] is Y


def test_texts_of_numpys_own_types_are_bytes() -> None:
    for texts in (np.array([["é"], ["b"]]), np.array([[b"\xc3\xa9"], [b"b"]])):
        got = Outputs(CONFIG).checked({"y": Y[:2], "t": texts}, 2)
        assert got["t"].tolist() == [["é".encode()], [b"b"]]


@given(st.lists(st.text(st.characters(codec=None, categories=["L", "Cs"])), min_size=1, max_size=4))
def test_any_text_of_a_model_becomes_utf8(texts: list[str]) -> None:
    """Names of files may hold bytes that are no Unicode, as Python's surrogates."""
    got = Outputs(CONFIG).checked({"y": Y[:1], "t": [texts]}, 1)["t"].ravel().tolist()
    assert [item.decode() for item in got] == [text.encode(errors="replace").decode() for text in texts]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "must return a dict of its outputs, and returned a NoneType"),
        ({"y": Y}, "did not return its output `t`"),
        ({"y": Y, "t": T, "z": Y}, "returned `z`, which is not one of its outputs"),
        ({"y": Y.astype(np.float64), "t": T}, "output `y` is FP32, and the model returned FP64"),
        ({"y": Y.astype(np.complex64), "t": T}, "output `y` is FP32, and the model returned complex64"),
        ({"y": Y[:2], "t": T}, "output `y` has 2 rows for a batch of 3"),
        ({"y": np.float32(1), "t": T}, "output `y` has no rows for a batch of 3"),
        ({"y": Y[:, :1], "t": T}, r"output `y` is \[2\], and the model returned \[1\]"),
        ({"y": Y, "t": T[:, 0]}, r"output `t` is \[-1\], and the model returned \[\]"),
        ({"y": Y, "t": Y}, "output `t` is BYTES, and the model returned FP32"),
        ({"y": Y, "t": [[1], [2], [3]]}, "output `t` is BYTES, and one of its elements is a int"),
        ({"y": [["a", "b"]] * 3, "t": T}, "output `y` is no FP32 array"),
        ({"y": [[1], [1, 2], []], "t": T}, "output `y` is no FP32 array"),
    ],
)
def test_mismatched_outputs_are_named(answer: Any, message: str) -> None:
    with pytest.raises(ModelFailed, match=message):
        Outputs(CONFIG).checked(answer, 3)


def test_outputs_are_given_the_shape_that_callers_see() -> None:
    spec = TensorSpec("y", "FP32", (-1, 1), reshape=(-1,))
    got = Outputs(ModelConfig("model", "python", outputs=(spec,), max_batch_size=4)).checked({"y": Y}, 3)
    assert got["y"].shape == (3, 2, 1)


def test_a_sequences_state_is_an_output_too() -> None:
    states = (SequenceState("s", "s_next", "INT64", (1,)),)
    config = ModelConfig("model", "python", outputs=(), sequence_batching=SequenceBatching(states=states))
    assert list(Outputs(config).checked({"s_next": np.zeros(1, np.int64)}, None)) == ["s_next"]
    with pytest.raises(ModelFailed, match="did not return its output `s_next`"):
        Outputs(config).checked({}, None)

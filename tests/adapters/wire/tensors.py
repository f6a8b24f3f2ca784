"""Tensors of every datatype, by hypothesis, and numpy's values for them."""

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from adapters.tensors import (
    ITEM_SIZE,
    NO_PARAMETERS,
    Parameter,
    Parameters,
    Tensor,
    byte_size,
    element_count,
    join_bytes,
)

NUMPY = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
"""The datatypes with a form in JSON, except BYTES."""

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
NAMES = st.text("abcXYZ_09é", min_size=1, max_size=6)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PARAMETERS: st.SearchStrategy[dict[str, Parameter]] = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), WORDS, st.floats(allow_nan=False, allow_infinity=False)),
    max_size=2,
)


def parameters() -> st.SearchStrategy[Parameters]:
    """None is always the shared one."""
    return PARAMETERS.map(lambda given: given or NO_PARAMETERS)


@st.composite
def datas(draw: st.DrawFn, datatype: str, shape: tuple[int, ...], *, text: bool) -> bytes:
    """The binary form of a tensor; where it is to go through JSON, without what JSON has no word for."""
    count = element_count(shape)
    if datatype == "BYTES":
        elements = WORDS.map(str.encode) if text else st.binary(max_size=8)
        return join_bytes(draw(st.lists(elements, min_size=count, max_size=count)))
    if datatype == "BOOL":
        return bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    size = byte_size(datatype, shape)
    data = draw(st.binary(min_size=size, max_size=size))
    if text and datatype.startswith("FP"):
        data = np.nan_to_num(np.frombuffer(data, NUMPY[datatype]), nan=1, posinf=2, neginf=-2).tobytes()
    return data


@st.composite
def tensors(draw: st.DrawFn, *, text: bool = False) -> Tensor:
    datatype = draw(st.sampled_from([*(NUMPY if text else ITEM_SIZE), "BYTES"]))
    shape = draw(SHAPES)
    return Tensor(draw(NAMES), datatype, shape, draw(datas(datatype, shape, text=text)), draw(parameters()))


def lists(*, text: bool = False, most: int = 3) -> st.SearchStrategy[list[Tensor]]:
    """Tensors of different names."""
    return st.lists(tensors(text=text), max_size=most, unique_by=lambda tensor: tensor.name)


def array(tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor as a numpy array. BYTES is excluded."""
    return np.frombuffer(tensor.data, NUMPY[tensor.datatype]).reshape(tensor.shape)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two are alike, however their bytes are held."""
    return (one.name, one.datatype, tuple(one.shape), bytes(one.data), dict(one.parameters)) == (
        other.name, other.datatype, tuple(other.shape), bytes(other.data), dict(other.parameters)
    )  # fmt: skip


def load_body(config: str | None, files: dict[str, bytes]) -> bytes:
    """The body with which Triton's client loads a model with a configuration and files of its own."""
    parameters = {} if config is None else {"config": config}
    parameters |= {f"file:{path}": base64.b64encode(data).decode() for path, data in files.items()}
    return json.dumps({"parameters": parameters} if parameters else {}).encode()

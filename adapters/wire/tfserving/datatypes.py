"""Names of datatypes: TensorFlow's and the Open Inference Protocol's."""

from collections.abc import Mapping

TENSORFLOW_NAMES: Mapping[str, str] = {
    "BOOL": "DT_BOOL",
    "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "BF16": "DT_BFLOAT16",
    "BYTES": "DT_STRING",
}  # fmt: skip
DATATYPES: Mapping[str, str] = {name: datatype for datatype, name in TENSORFLOW_NAMES.items()}
"""The datatypes of the protocol. Any other datatype has TensorFlow's name."""

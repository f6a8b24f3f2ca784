"""What Triton calls things in a model's configuration, and what they are called here."""

from __future__ import annotations

from config.place import Place

DATATYPES = {
    f"TYPE_{'STRING' if name == 'BYTES' else name}": name
    for name in (
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    )
}  # fmt: skip
TYPES = {name: word for word, name in DATATYPES.items()}

BACKENDS = {"onnxruntime": "onnx", "pytorch": "torch"}
"""Triton's word → ours, where they differ."""
TRITON_BACKENDS = {name: word for word, name in BACKENDS.items()}
PLATFORMS = {
    "onnxruntime_onnx": "onnx",
    "pytorch_libtorch": "torch",
    "tensorflow_savedmodel": "tensorflow",
}
"""The older words, which name the file's format too."""
TREES = {
    "xgboost": "xgboost",
    "xgboost_json": "xgboost",
    "xgboost_ubj": "xgboost",
    "lightgbm": "lightgbm",
}
"""`model_type` of Triton's backend for forests (fil) → ours."""

_STEPS = {
    "inputs": "input",
    "outputs": "output",
    "instance_groups": "instance_group",
    "warmup": "model_warmup",
    "controls": "control_input",
    "states": "state",
    "datatype": "data_type",
    "layout": "format",
    "label_file": "label_filename",
    "decoupled": "model_transaction_policy",
    "max_queue_delay": "max_queue_delay_microseconds",
    "max_sequence_idle": "max_sequence_idle_microseconds",
    "default_timeout": "default_timeout_microseconds",
    "max_candidate_sequences": "oldest",
    "minimum_slot_utilization": "direct",
    "initial_file": "initial_state",
    "initial_dims": "initial_state",
    "initial": "initial_state",
    "version_labels": "parameters",
    "allowed_batch_sizes": "parameters",
    "pad_to": "parameters",
    "quantize": "parameters",
    "execution_timeout": "parameters",
    "memory_bytes": "parameters",
}


def written_place(place: Place) -> Place:
    """A place of `ModelConfig`, as `config.pbtxt` calls it."""
    return tuple(_STEPS.get(step, step) if isinstance(step, str) else step for step in place)

"""`python -m tests.servers.stand_ins.tfserving.saved FOLDER SCALE…`: versions of a small SavedModel."""

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2


class Net(tf.Module):  # type: ignore[misc] # tensorflow is not installed where this is checked
    """Scales inputs, converts texts to capitals, classifies examples into three classes and estimates their values."""

    def __init__(self, scale: float) -> None:
        self.scale = tf.Variable(scale)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])  # type: ignore[untyped-decorator]
    def scaled(self, x: Any) -> Any:
        return {"y": self.scale * x, "sum": tf.reduce_sum(x, axis=1)}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text"),
            tf.TensorSpec([None], tf.int64, name="times"),
        ]
    )
    def shouted(self, text: Any, times: Any) -> Any:
        loud = tf.strings.join([text, tf.strings.as_string(times), "!"])
        return {"loud": loud, "raw_bytes": tf.strings.join([text, b"\xff"]), "odd": times % 2 == 1}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])  # type: ignore[untyped-decorator]
    def classified(self, inputs: Any) -> Any:
        scores = tf.nn.softmax(_features(inputs) @ tf.constant([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]))
        labels = tf.tile(tf.constant([["cat", "dog", "fish"]]), [tf.shape(inputs)[0], 1])
        return {"classes": labels, "scores": scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])  # type: ignore[untyped-decorator]
    def valued(self, inputs: Any) -> Any:
        return {"outputs": self.scale * tf.reduce_sum(_features(inputs), axis=1, keepdims=True)}


def _features(serialized: Any) -> Any:
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("a", "b")}
    parsed = tf.io.parse_example(serialized, spec)
    return tf.stack([parsed["a"], parsed["b"]], axis=1)


def save(folder: Path, net: Net) -> None:
    signatures = {
        "serving_default": net.scaled, "shout": net.shouted, "classify": net.classified, "regress": net.valued,
    }  # fmt: skip
    tf.saved_model.save(net, str(folder), signatures=signatures)
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in saved.meta_graphs:
        for name in ("classify", "regress"):
            # Current TensorFlow names every method `predict`.
            graph.signature_def[name].method_name = f"tensorflow/serving/{name}"
    path.write_bytes(saved.SerializeToString())


for number, scale in enumerate(sys.argv[2:], 1):
    save(Path(sys.argv[1]) / str(number), Net(float(scale)))

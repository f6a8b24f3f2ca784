"""Messages and calls of TensorFlow Serving's gRPC services, and the messages of TensorFlow in them.

The `.proto` files are excerpts of the published ones (Apache 2.0, see their heads); `tfserving.binpb` is made from them
by `make protos`, with the two files of protobuf's own that they need.
"""

from pathlib import Path
from typing import Any

from adapters.wire.protos import load, messages, methods

_FILES = load(Path(__file__).parent / "tfserving.binpb")

tensorflow: Any = messages(_FILES["tensorflow.proto"])
"""`tensorflow.TensorProto` and the others."""
serving: Any = messages(_FILES["tensorflow_serving.proto"])
"""`tensorflow.serving.PredictRequest` and the others."""
datatypes: Any = _FILES["tensorflow.proto"].enum_types_by_name["DataType"]

PREDICTION = methods(_FILES["tensorflow_serving.proto"].services_by_name["PredictionService"])
"""The methods of `tensorflow.serving.PredictionService`, by name."""
MODEL = methods(_FILES["tensorflow_serving.proto"].services_by_name["ModelService"])
"""The methods of `tensorflow.serving.ModelService`, by name."""

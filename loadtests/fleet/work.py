"""What the fleet computes. Nothing is imported here: locust's environment reads it too."""

ADDERS = ("triton", "torchserve", "ray-serve", "bentoml", "kserve", "mlserver", "headrace")
"""Systems that add and subtract rows: each has a model `add-NAME`."""
SCALE = 5
"""Of the model `scale`, on TensorFlow Serving: `y` is so many times `x`."""

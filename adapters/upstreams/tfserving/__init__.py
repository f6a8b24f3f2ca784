"""TensorFlow Serving, and KServe's v1."""

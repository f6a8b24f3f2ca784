"""TensorFlow Serving's wires, and KServe's v1."""

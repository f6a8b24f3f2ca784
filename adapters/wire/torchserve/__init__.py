"""TorchServe's wires."""

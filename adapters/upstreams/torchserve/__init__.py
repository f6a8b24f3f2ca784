"""TorchServe."""

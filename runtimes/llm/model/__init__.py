"""The computation of a step."""

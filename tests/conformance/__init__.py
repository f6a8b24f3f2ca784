"""Every system that there is before the suite of `adapters/conformance`.

A module a system: a fixture that gives its `Subject`, and one test over all features (see test_triton.py). What was
found is kept in `docs/conformance/`, a file a system; `make conformance` writes it, and every other run compares.
"""

"""Every supported system before the suite of `adapters/conformance`.

Each system has one module: a fixture that gives its `Subject`, and one test over all features (see test_triton.py). The
results are in `docs/conformance/`, one file for each system; `make conformance` writes them, and every other run
compares.
"""

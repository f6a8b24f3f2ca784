"""The engine and the tensor runtime on a GPU, in one run of eight minutes at most: `python -m loadtests.gpu --help`.

For a machine that has Linux, Python, PyTorch, Triton and transformers, and no network. Models have random weights.

__main__.py   the command line: parts in order, each with what is left of the time
run.py        the time, the figures and the failures of a run, as a table and as JSON
shapes.py     models by size, written as folders
kernels.py    the executor of a GPU beside the reference, step by step
answers.py    the engine beside transformers; graphs beside none; the size of the KV cache
speed.py      tokens a second and the time to a first token, beside transformers and the limits of the device
limits.py     the device's bandwidth and rate, and what they allow
tensors.py    the tensor runtime beside the same model, called directly
wheels.py     the packages that such a machine lacks
"""

"""The same engine on a GPU.

attention.py   Triton kernels: attention that reads keys and values where they lie, page by page
layout.py      where a step's tokens are, as the kernels want it told
graphs.py      steps of single tokens, recorded once for each size and replayed
memory.py      how much is left for the KV cache when the weights are there and the largest step was computed
executor.py    all of it as one `Executor`
"""

"""The same engine on a GPU.

attention.py   Triton kernels: attention that reads keys and values in place, page by page
layout.py      the positions of a step's tokens, in the layout of the kernels
graphs.py      steps of single tokens, recorded once for each size and replayed
memory.py      the memory that is left for the KV cache beside the weights and the largest step
executor.py    combines the others as one `Executor`
"""

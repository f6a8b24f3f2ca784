"""The same engine on a GPU.

attention.py   Triton kernels: attention that reads keys and values in place, page by page
layout.py      the positions of a step's tokens, in the layout of the kernels
executor.py    the executor; steps of single tokens are recorded once for each size and replayed
"""

"""The step in C++, compiled on the machine that runs it, for its processor.

executor.py          the executor: it owns the weights and the KV cache in C++, and chooses the number of threads
adapter.py           adapters in its memory
build.py             compiles the library, once for each state of its sources
"""

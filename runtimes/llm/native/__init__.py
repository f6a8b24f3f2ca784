"""The step in C++, compiled on the machine that runs it, for its processor.

executor.py          the executor: it owns the weights and the KV cache in C++
build.py             compiles the library, once for each state of its sources
team_size.py         how many threads compute a step
"""

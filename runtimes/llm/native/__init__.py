"""The step in C++: compiled where it runs, for the processor that it runs on."""

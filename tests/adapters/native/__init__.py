"""The native core and the Python that defines it: the same bytes through both.

sequences.py  generated requests and responses, whole and in pieces, valid and mutated
outcomes.py   what a receiver or an exchange makes of a sequence
fuzz.py       compares both for as long as it may run: `python -m tests.adapters.native.fuzz --help`
builds.py     the core compiled with sanitizers
"""

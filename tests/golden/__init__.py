"""What the outside sees, kept as files: a change of the inside changes none of them.

`python -m tests.golden` writes the files again, and the change shows in the diff.
"""

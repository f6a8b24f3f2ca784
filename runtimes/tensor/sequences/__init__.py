"""Sequences: requests that belong together, in order, on one copy of a model.

sequencer.py       the scheduler of models with `sequence_batching`
lifecycle.py       requests of open sequences enter, compute and leave; sequences end
open_sequences.py  open sequences, their slots, and those that wait for a slot
lane.py            one copy and its sequences; turns of a model that receives requests whole
sequence.py        one sequence, one request of it, and the sequences of a copy that compute together
inputs.py          controls and states: inputs that the runtime makes
"""

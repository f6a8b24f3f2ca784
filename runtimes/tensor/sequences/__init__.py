"""Sequences: requests that belong together, in order, on one copy of a model.

sequencer.py       the scheduler of models with `sequence_batching`
lifecycle.py       requests of open sequences enter, compute and leave; sequences end
lane.py            one copy and its sequences; turns of a model that receives requests whole
sequence.py        sequences, requests of them, those that are open or wait for a slot, and the choice of the next
inputs.py          controls and states: inputs that the runtime makes
"""

"""The tensor runtime: models of any framework behind the Open Inference Protocol, batched dynamically.

One request: wire codec (`adapters.wire.oip`) → service → the model's scheduler (batcher, sequencer or direct) →
an instance, on a thread or in a process of its own → a backend → back the same way.
"""

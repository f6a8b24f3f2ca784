"""The node `guard`: blocks requests and answers that its model classifies as forbidden.

node.py              the node, for whole requests and answers
examiner.py          sends windows of a text to the guard's model and evaluates its condition
generated_stream.py  a stream of a chat or a completion that leaves as its windows pass
tensor_stream.py     the same for a stream of tensors
"""

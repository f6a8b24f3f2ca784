"""Shadow traffic: copies of requests to another target, and the comparison of the answers.

plane.py       the parts in one process, and their reconfiguration
copies.py      draws, sends and compares copies, behind the client's answer
copied.py      one copy: the request, the client's answer, and the reasons why a request is not copied
targets.py     pools of copies, with connections of their own, and models without limits, prices and caches
answers.py     decodes whole answers of any wire for their comparison
comparer.py    comparisons, at once, in a worker process or by a model; the texts of samples
live.py        the shadows of one process, across reloads: counts, times and prices
store.py       reads the counts of all processes, and adds to them
writer.py      a loop: stores the counts, and reports a new verdict
operators.py   an operator's view, for the admin API and the command line
metrics.py     metrics of shadows
cli.py         `headrace shadow`

The path of a count: `copies.py` compares the answers, `policies.shadowing` counts the pair, `writer.py` adds the counts
of this process to the sums in the database, and `policies.shadowing.pairs` judges the sums.
"""

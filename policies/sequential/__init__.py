"""Tests and intervals that are valid at every look: a decision may be made after any event, as often as it pleases.

An e-value is a number whose mean is at most 1 while the tested hypothesis holds, at every moment of stopping. It
reaches 1/alpha with a probability of at most alpha (Ville, 1939). A confidence sequence is an interval that contains
the true value at all moments together with a probability of at least 1 - alpha.

event_test.py    the ratio of two arms' event rates: e-values and intervals
proportions.py   confidence sequences of a rate, and of the difference of two rates
quantiles.py     counts of latencies in logarithmic bins: a quantile's confidence sequence, two arms' quantiles
means.py         the confidence sequence of the mean of bounded values; CUPED
subexponential.py  the same of values with a wide range, from sums that add up
blocks.py        the test of two arms' rates in blocks of both outcomes
effect.py        the difference of two arms' means, also while their shares change
sample_ratio.py  whether the arms have their shares of the subjects
thompson.py      Thompson sampling with a least share for each arm

The numbers are sums over processes, restarts and gateways. The formulas have their sources; none needs a library.
"""

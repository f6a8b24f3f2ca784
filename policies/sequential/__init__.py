"""Tests and intervals that are valid at every look: a decision may be made after any event, as often as it pleases.

An e-value is a number whose mean is at most 1 while the tested hypothesis holds, at every moment of stopping. It
reaches 1/alpha with a probability of at most alpha (Ville, 1939). A confidence sequence is an interval that contains
the true value at all moments together with a probability of at least 1 - alpha.

event_ratio.py   the ratio of two arms' event rates: e-values and intervals
proportions.py   confidence sequences of a rate and of the difference of two rates; whether the arms have their shares
quantiles.py     counts of latencies in logarithmic bins: a quantile's confidence sequence, two arms' quantiles
subexponential.py  confidence sequences of values with a wide range, from sums that add up
effect.py        the difference of two arms' means, also while their shares change
thompson.py      Thompson sampling with a least share for each arm

The numbers are sums over processes, restarts and gateways. The formulas have their sources; none needs a library.
"""

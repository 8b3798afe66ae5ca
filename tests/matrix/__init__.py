"""The fault matrix: each fault, at each part of a cluster of real processes, idle and under load.

`python -m tests.matrix` prints what was lost, ran twice, ran again or got stuck, and how long until all was well.
"""

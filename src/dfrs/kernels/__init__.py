"""Compiled inner loops: arrays in, arrays out, nothing of ours imported but the jit decorator.

Each kernel has a slow, obvious twin in `tests/naive/` that hypothesis compares it with.
"""

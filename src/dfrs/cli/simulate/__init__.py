"""Verbs for traces, runs, instances and allocations."""

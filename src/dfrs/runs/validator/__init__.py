"""Checks runs and allocations. Shares no code with what it checks."""

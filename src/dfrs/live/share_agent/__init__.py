"""Gives jobs of another engine their shares of a node's CPUs, and measures what they get: beside slurmd."""

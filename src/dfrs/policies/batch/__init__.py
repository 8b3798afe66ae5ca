"""Policies that give whole nodes: backfilling, and sets of jobs."""

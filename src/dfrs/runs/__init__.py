"""Runs: their directories, what they were worth, their replay, and the independent checker."""

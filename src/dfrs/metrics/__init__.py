"""Measuring and checking what others made."""

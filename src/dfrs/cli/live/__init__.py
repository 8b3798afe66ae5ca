"""Verbs of the live cluster: for users, and for operators."""

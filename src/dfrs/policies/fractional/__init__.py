"""Policies that share nodes in fractions: the grammar of their names, and its parts."""

"""Policies for clusters of unequal groups of nodes."""

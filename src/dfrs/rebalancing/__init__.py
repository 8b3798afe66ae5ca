"""Rebalancing a running cluster: a plan from a snapshot, carrying it out, and doing so again and again."""

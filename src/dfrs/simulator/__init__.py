"""Simulates a cluster under a policy: events by time, a world that performs commands at a modelled cost."""

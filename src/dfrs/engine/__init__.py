"""Decides what a cluster does: a state machine without clock or I/O that the simulator and the live shell share."""

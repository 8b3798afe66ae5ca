"""Slurm as the backend: it owns jobs, nodes and their ends, and starts, suspends and requeues what is decided here."""

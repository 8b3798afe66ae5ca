"""A cluster on one machine: its controller and agents as children of one process."""

"""What drivers of processes share: the supervisor of a task, and its files."""

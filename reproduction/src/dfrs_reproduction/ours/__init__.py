"""What was never published: our own algorithms, measured in the same way."""

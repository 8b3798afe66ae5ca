"""Off-line algorithms: place services on nodes so that the least happy one is as happy as possible."""

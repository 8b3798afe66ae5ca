"""Off-line algorithms: place services on nodes so that the minimum yield is as large as possible."""

"""Functions as jobs: the executor in the program that calls them, and the program that runs one on a node."""

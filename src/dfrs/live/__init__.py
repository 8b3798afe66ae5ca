"""The live cluster: a controller around the core, agents on the nodes, and the drivers that run real programs."""

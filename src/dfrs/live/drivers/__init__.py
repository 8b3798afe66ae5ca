"""How a node runs tasks: one driver for each kind of mechanism."""

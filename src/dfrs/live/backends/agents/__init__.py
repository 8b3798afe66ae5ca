"""Our own agents: they open a connection to the controller each, and run tasks on their nodes."""

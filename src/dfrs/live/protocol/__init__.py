"""What controller, agents and clients say to each other, and the ports between them."""

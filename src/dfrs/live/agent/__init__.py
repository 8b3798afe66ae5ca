"""A node's side: brings each task to what the controller desires, and tells what it is."""

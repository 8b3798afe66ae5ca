"""What no algorithm can pass."""

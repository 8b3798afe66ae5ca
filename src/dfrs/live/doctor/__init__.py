"""What is wrong on a machine of a live cluster, and how to mend it."""

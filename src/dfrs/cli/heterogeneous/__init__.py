"""`dfrs farm`: clusters of unequal groups of nodes."""

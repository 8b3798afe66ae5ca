"""Several controllers on one PostgreSQL: one leads under a lease, the others follow it and wait to take over."""

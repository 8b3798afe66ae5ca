"""How the database came to have the tables that it has; run by `database` whenever it opens one."""

"""How the database came to have the tables that it has; run by `dfrs.live.journal` whenever it opens one."""

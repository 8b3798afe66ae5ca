"""`dfrs farm`: clusters of different hardware, managed as one."""

"""Public traces of large clouds, read from the files that their publishers give: one module for each trace."""

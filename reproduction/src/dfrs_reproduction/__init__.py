"""Published tables and figures, made again with dfrs and shown beside the published numbers."""

"""The dashboard: a page that loads nothing from elsewhere."""

"""Verbs that run many: campaigns, and the published tables."""

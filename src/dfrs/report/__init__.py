"""Pictures and pages that people want to look at."""

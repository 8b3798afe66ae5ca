"""Sources of scenarios: traces and instances, each with its table in a campaign file."""

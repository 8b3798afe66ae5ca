"""What cells are run on: traces and instances, each with its table in a campaign file."""

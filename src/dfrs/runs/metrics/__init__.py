"""What a run was worth."""

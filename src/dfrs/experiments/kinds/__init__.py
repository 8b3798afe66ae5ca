"""What a campaign can run: a module for the runs of each kind, and one for its study."""

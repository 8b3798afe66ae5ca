"""Where problems come from: files and generators."""

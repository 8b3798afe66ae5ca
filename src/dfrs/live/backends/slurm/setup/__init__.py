"""What a site's Slurm needs so that dfrs can decide for one of its partitions: checked, written, and taken back."""

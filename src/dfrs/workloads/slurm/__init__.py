"""What a Slurm site knows of its jobs and nodes: the output of `sacct`, `scontrol show nodes` and `sinfo -N`."""

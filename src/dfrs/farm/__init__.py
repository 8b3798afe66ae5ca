"""Farms of unequal sub-clusters: predictions from profiles, files, and what 003 measured of the NAS benchmarks."""

"""Snapshots of clusters as others write them, each as an instance and where its tasks run now: a module a format."""

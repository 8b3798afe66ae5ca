"""Slow, obvious twins of the kernels, written from the documents; what a kernel computes must equal what they do."""

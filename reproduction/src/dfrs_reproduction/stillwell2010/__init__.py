"""[Stillwell2010]: the dissertation on dynamic fractional resource scheduling.

The article [Stillwell2010b] has a part of its tables.
"""

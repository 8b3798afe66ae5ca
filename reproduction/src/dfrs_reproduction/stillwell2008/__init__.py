"""[Stillwell2008]: resource allocation using virtual clusters, research report RR-6692."""

"""Policies that find out what jobs need by watching them."""

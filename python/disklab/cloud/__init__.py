"""Hosts made in a cloud for one run, and removed after it."""

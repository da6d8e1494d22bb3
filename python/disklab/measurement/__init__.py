"""Measuring on hosts that exist: the same experiment file, the same results, real disks."""

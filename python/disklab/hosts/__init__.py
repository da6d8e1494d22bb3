"""Where disks and databases run."""

"""Power cuts below the file system: what was promised must be there after each."""

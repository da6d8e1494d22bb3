"""A command of the user's on an emulated disk: what the disk did for it, and what it may do."""

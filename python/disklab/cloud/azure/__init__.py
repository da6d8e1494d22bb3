"""Azure: one template of all resources, and the few REST calls that make and remove them."""

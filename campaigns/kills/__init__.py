"""The crash campaign: every step of disklab killed, and what must be true afterwards."""

"""Prediction held against rehearsal: the same cells simulated, and run for real on this machine."""

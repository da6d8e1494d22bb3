"""The answer to an experiment, drawn from stored results alone."""

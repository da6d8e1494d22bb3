"""Whether tests notice: comparisons of each room are turned, and its tests in CI should fail."""

"""The live page of runs, and their metrics: reads run folders, runs nothing."""

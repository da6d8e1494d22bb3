"""Simulates cells on other machines: a Ray cluster, or hosts that are reached over SSH.

Neither needs disklab: the engine is sent, and a job has the same answer wherever it runs.
"""

from disklab.sweeps.chosen import cluster_of

__all__ = ["cluster_of"]

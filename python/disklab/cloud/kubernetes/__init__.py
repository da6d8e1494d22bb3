"""Probes of a storage class of Kubernetes: the Job, and kubectl that runs it."""

"""Advice: the cheapest system of the catalogue that keeps what an experiment file requires."""

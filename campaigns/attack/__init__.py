"""Hostile tries against disklab: `python -m campaigns.attack --tries N`.

A kind of tries is a module with a `KIND` (`kind.py`) and a place in `registry.py`.
"""

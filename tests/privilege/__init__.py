"""Tests of what disklab does under sudo."""

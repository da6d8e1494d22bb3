"""Campaigns that go on for as long as one likes; a small share of each is a test."""

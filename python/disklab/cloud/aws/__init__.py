"""Hosts made in AWS: template, calls of EC2, site."""

"""Posting once per key, and noticing when a platform does not answer."""

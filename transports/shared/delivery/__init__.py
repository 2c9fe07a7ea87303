"""Posting once per key, and writing over messages of ours."""

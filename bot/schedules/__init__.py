"""Scheduled messages to a thread. Off unless the settings enable them."""

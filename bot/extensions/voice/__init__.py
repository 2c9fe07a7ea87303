"""Voice messages and other recordings as text."""

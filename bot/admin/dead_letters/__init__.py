"""Messages that were given up: how to list them and how to send one again."""

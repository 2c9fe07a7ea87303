"""`threadfast init`: sets up a bot that answers. All values are tested first, and written together at the end."""

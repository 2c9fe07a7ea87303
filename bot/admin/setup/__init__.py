"""`threadfast init`: from nothing to a bot that answers. Gathered and tried first, written together at the end."""

"""Forgetting: what is old by the settings, and all of a person or of a thread when somebody asks for it."""

"""The store of many workers: one PostgreSQL."""

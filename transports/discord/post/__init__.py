"""Posts that stay: put out once per key, found again after a crash."""

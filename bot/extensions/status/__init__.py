"""`threadfast status` and `threadfast events`: what the running bot says of itself, asked from outside."""

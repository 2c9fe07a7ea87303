"""Signs of work while a turn runs."""

"""What people see in a message, and what the model reads of it: one row for each kind that a platform documents."""

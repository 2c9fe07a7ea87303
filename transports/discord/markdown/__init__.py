"""What we say, in the forms that Discord takes, and harmless; pure."""

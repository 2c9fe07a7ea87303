"""What we say, in the forms that Slack takes, and harmless; pure."""

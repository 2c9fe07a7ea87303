"""Messages to a thread that come at a time that a person has set. Off unless the settings enable it."""

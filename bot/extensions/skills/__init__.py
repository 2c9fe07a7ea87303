"""Skills: how-tos by the admin, with one line each in the system prompt, which the model reads on demand."""

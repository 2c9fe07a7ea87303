"""Files in the thread's workspace: read, write, edit, search, attach."""

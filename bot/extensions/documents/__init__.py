"""Files from outside as text or images; a child process without rights takes them apart."""

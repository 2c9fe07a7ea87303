"""The unit, the installer and the real process under a real systemd, started in namespaces on a throw-away root."""

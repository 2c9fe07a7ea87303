"""What an operator uses: the command line, set-up, reports, status, backup and dead letters."""

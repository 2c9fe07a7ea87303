"""What an operator uses: the command line, reports, status, backup and dead letters."""

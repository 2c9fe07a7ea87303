"""What an operator uses: the command line, set-up, doctor, reports, status, backup and dead letters."""

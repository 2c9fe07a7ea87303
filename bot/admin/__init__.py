"""What an operator uses: the command line, reports, status and dead letters."""

"""Work in the background: a turn leaves a job, which reports into its thread when it is done."""

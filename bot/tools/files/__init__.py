"""Files of a thread's workspace, for every tool that has to do with them: paths, the quota, and the writer."""

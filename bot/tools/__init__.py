"""Tools: one gate for every call, approvals, results, and the tools themselves."""

"""The door of the program: what an extension may bring, and what it is given."""

"""Makes the documents that are drawn from the code: ``python -m deploy.generate``. A test compares them."""

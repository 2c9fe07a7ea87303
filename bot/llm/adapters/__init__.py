"""One adapter per wire format. An adapter translates and classifies; it never retries or waits."""

"""One adapter per wire format. An adapter only translates and classifies errors."""

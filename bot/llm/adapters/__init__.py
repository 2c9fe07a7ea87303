"""What all adapters are made of, and the demo. An adapter only translates one wire form and classifies errors."""

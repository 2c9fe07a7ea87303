"""What every transport implements, and the text functions all of them use."""

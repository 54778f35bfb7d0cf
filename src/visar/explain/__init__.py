"""What the method saw, as data and as pictures."""

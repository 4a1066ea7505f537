"""Studies of a published language model: what STEM's rows would be in it, and what they do."""

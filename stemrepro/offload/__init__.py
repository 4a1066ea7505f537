"""Tables in host memory while a model answers."""

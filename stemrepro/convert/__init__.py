"""Models into the project and out of it: Hugging Face's folders, Llama, the official code's checkpoints."""

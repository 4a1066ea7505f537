"""Conversion of models: Hugging Face's folders, Llama, the official code's checkpoints."""

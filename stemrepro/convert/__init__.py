"""Conversion of models: Hugging Face's folders and Llama."""

"""From the name of a memory to the file that has it; without torch."""


def memory_module(name: str) -> str:
    """Return the module of a memory, "over-encoding" -> "stemrepro.model.memory.over_encoding"."""
    return f"{__package__}.{name.replace('-', '_')}"

"""The shape of a model that plain loops in tests can follow."""

SMALL = {"vocab": 11, "width": 8, "layers": 2, "heads": 2, "kv_heads": 1, "ffn_width": 10}

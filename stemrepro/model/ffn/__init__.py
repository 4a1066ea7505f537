"""The feed-forward networks, one a file, so that an edit of one leaves the runs of all others valid.

The equation stands in each class. All have the same signature: `forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq,
width]`. W are matrices, U is a table [vocab, ffn_width] of which a token's row is read. stemrepro.model.specs lists them.
"""

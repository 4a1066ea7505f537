"""The feed-forward networks, one per file, so that an edit of one leaves the runs of all others valid.

Each class has its equation. All have the same signature:
`forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq, width]`.
W are matrices. U is a table [vocab, ffn_width] of which a token's row is read.
`@ffn(name)` of the base registers a class; recipes/arms.yaml makes an arm of it.
"""

from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.dense import SwiGLU


@ffn("token-ffn")
class TokenFFN(SwiGLU):
    """Control: the dense FFN of the token's input embedding, y = W_d (SiLU(W_g e) * W_u e), e = RMSNorm(E0[token]).

    E0 is the model's input embedding and the norm is the block's ffn_norm, so that all parameters are dense's. Nothing
    of the context reaches y. After training the network folds into one table [vocab, width] per layer, as MoLE (arXiv
    2503.15798) and MemoryLLM (arXiv 2602.00398) do. Simplified: one expert and no router (MoLE mixes several by the
    context), and attention is the backbone's.
    """

    reads_embedding = True

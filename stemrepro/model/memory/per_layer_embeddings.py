import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import matrix
from stemrepro.model.memory.base import Memory, memory


@memory("per-layer-embeddings", needs=("rank", "memory_layers"))
class PerLayerEmbeddings(Memory):
    """Gemma 3n's per-layer embeddings: after layer l, x + RMSNorm_l(W_o^l (GELU(W_g^l x) * p_l)).

    The layer's input is p_l = (sqrt(rank) N_l[token] + RMSNorm(W_p^l e)) / sqrt(2), with e the token's embedding.
    N_l is [vocab, rank], W_p^l and W_g^l [rank, width], W_o^l [width, rank]. GELU is the one by tanh. The norm in p_l
    has one gain for all layers, that after W_o^l one for each layer; both start at 1.
    The source is modeling_gemma3n.py of transformers 5.23: `get_per_layer_inputs` and `project_per_layer_inputs` of
    Gemma3nTextModel, and the end of Gemma3nTextDecoderLayer.

    Left out are AltUp and Laurel, which are other ideas. So the sum goes to the only stream.
    Chosen, because the function is the same: a table and a projection of each layer, not one for all side by side.
    Chosen, because our embeddings are not scaled: no factor before the norm. Gemma has e times sqrt(width), and W_p e
    by sqrt(width), of which nothing is left.
    Chosen, because the model has one: epsilon `norm_eps`, where Gemma has 1e-6.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, rank, layers = config.width, config.rank, len(config.memory_layers)
        self.rank = rank
        self.tables = nn.ModuleList(nn.Embedding(config.vocab, rank) for _ in range(layers))
        self.projections = nn.ModuleList(matrix(width, rank) for _ in range(layers))
        self.projection_norm = nn.RMSNorm(rank, config.norm_eps)
        self.gates = nn.ModuleList(matrix(width, rank) for _ in range(layers))
        self.outs = nn.ModuleList(matrix(rank, width) for _ in range(layers))
        self.out_norms = nn.ModuleList(nn.RMSNorm(width, config.norm_eps) for _ in range(layers))

    def layer_input(self, place: int, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Return p of the place-th of these layers: embeddings [B, T, D], tokens [B, T] -> [B, T, rank]."""
        rows = self.rank**0.5 * self.tables[place](tokens)
        return (rows + self.projection_norm(self.projections[place](embedded))) * 0.5**0.5

    def after(self, place: int, x: Tensor, embedded: Tensor, tokens: Tensor) -> Tensor:
        gate = F.gelu(self.gates[place](x), approximate="tanh")
        return x + self.out_norms[place](self.outs[place](gate * self.layer_input(place, embedded, tokens)))

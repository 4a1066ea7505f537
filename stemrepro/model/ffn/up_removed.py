import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn, matrix


@ffn("up-removed", grows_by="ffn_width")
class UpRemoved(FFN):
    """Control: STEM without its table, y = W_d SiLU(W_g x).

    With dense, STEM-dagger and STEM it is the factorial (W_u kept or removed) x (table or none), as a checker of Memory
    Attention (arXiv 2609.28399) proposes. up-removed - STEM is what the table gives, dense - up-removed what losing W_u
    costs.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = matrix(config.width, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)))

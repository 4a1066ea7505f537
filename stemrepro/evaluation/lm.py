"""Our checkpoints as a model of lm-eval, so that its own code scores them.

    from lm_eval import simple_evaluate
    from stemrepro.evaluation.lm import StemLM, task_manager

    lm = StemLM.from_folder("runs/laptop/stem-full/seed0", "data/laptop/tokenizer.json")
    simple_evaluate(lm, tasks=["openbookqa", "atlas_capital"], task_manager=task_manager("data/text/items"))

Every text is scored as the start of a document: behind the end mark, as in training. A prompt that is longer than the
context loses its beginning (as in lm-eval's own models) and is counted; an answer that is longer is refused.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import yaml
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import Collator, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from safetensors.torch import load_file
from tokenizers import Tokenizer

from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.errors import UserError
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.recipe import Arm, Shape, shaped

TASKS = Path(__file__).with_name("tasks")


def task_manager(items: Path | str, hub: bool = False) -> TaskManager:
    """lm-eval's task manager with our tasks.

    Args:
        items: folder that `stemrepro data items` wrote.
        hub: take lm-eval's own tasks, which read the Hugging Face hub, instead of those of the pinned archive (the names
            are the same); tasks made from the training text stay.
    """
    folders = [TASKS / "text"] if hub else [TASKS / "text", TASKS / "archive"]
    return TaskManager(include_path=folders, include_defaults=hub, metadata={"items": str(items)})


class StemLM(TemplateLM):
    """A decoder and its tokenizer behind lm-eval's interface.

    Attributes:
        truncated: requests so far whose prompt lost its beginning.
        on_batch: called with (tokens, mean loss in nats) after each batch, in place of lm-eval's own progress bar.
    """

    def __init__(self, model: Decoder, tokenizer: Tokenizer, context: int, batch: int = 64) -> None:
        super().__init__()
        self.model, self.tokens, self.context, self.batch = model.eval(), tokenizer, context, batch
        self.truncated = 0
        self.on_batch: Callable[[int, float], None] | None = None

    @classmethod
    def from_folder(cls, folder: Path | str, tokenizer: Path | str, batch: int = 64) -> "StemLM":
        """The trained model of a run folder.

        Raises:
            UserError: no finished run there, or weights that don't fit its config.yaml.
        """
        folder = Path(folder)
        for path in (folder / "config.yaml", folder / "weights.safetensors"):
            if not path.exists():
                raise UserError(f"{path} is missing; train the run first ('dvc repro' or 'stemrepro train')")
        config = yaml.safe_load((folder / "config.yaml").read_text())
        shape = Shape(**config["model"])
        model = Decoder(shaped(shape, Arm(**{k: v for k, v in config["arm"].items() if k != "name"})))
        try:
            model.load_state_dict(load_file(folder / "weights.safetensors"))
        except Exception as error:
            raise UserError(
                f"{folder}/weights.safetensors does not hold the weights of its config.yaml: {error}"
            ) from error
        return cls(model, read_tokenizer(tokenizer), shape.sequence, batch)

    @property
    def eot_token_id(self) -> int:
        """The end mark, which also begins every text."""
        return END_OF_DOCUMENT

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: object) -> list[int]:
        """Tokens of a text, without marks."""
        return self.tokens.encode(string).ids

    def loglikelihood(self, requests: list, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihood in nats of each answer behind its prompt, and whether greedy decoding would give it."""
        return super().loglikelihood(requests, disable_tqdm or self.on_batch is not None)

    def _cut(self, context: list[int], answer: list[int], text: str) -> list[int]:
        """End mark, prompt and answer, the newest context + 1 tokens of them."""
        whole = [*([] if context[:1] == [END_OF_DOCUMENT] else [END_OF_DOCUMENT]), *context, *answer]
        if len(answer) > self.context:
            raise UserError(
                f"an answer of {len(answer)} tokens ('{text.strip()[:60]}...') is longer than the model's context of "
                f"{self.context}; leave that task out of the scale's benchmarks or give it a longer sequence"
            )
        self.truncated += len(whole) > self.context + 1
        return whole[-(self.context + 1) :]

    @torch.no_grad()
    def _batched(self, rows: list[list[int]]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Losses and greedy hits [length - 1] of each token row, for rows of any length; padding stands on the right."""
        device, size = next(self.model.parameters()).device, max(map(len, rows))
        padded = torch.tensor([row + [END_OF_DOCUMENT] * (size - len(row)) for row in rows], device=device)
        logits = self.model(padded[:, :-1])
        losses, hits = token_losses(logits, padded[:, 1:]).cpu(), (logits.argmax(-1) == padded[:, 1:]).cpu()
        real = sum(len(row) - 1 for row in rows)
        total = sum(float(loss[: len(row) - 1].sum()) for loss, row in zip(losses, rows, strict=True))
        if self.on_batch:
            self.on_batch(real, total / real)
        for loss, hit, row in zip(losses, hits, rows, strict=True):
            yield loss[: len(row) - 1], hit[: len(row) - 1]

    def _loglikelihood_tokens(self, requests: list, **_: object) -> list[tuple[float, bool]]:
        """The same for token lists, longest rows first so that a batch has little padding."""
        prepared = [(self._cut(context, answer, text[1]), len(answer)) for text, context, answer in requests]
        collator, results = Collator(prepared, sort_fn=lambda pair: -len(pair[0])), []
        for chunk in collator.get_batched(n=self.batch):
            found = self._batched([row for row, _ in chunk])
            for (_, answer), (loss, hit) in zip(chunk, found, strict=True):
                results.append((-float(loss[-answer:].double().sum()), bool(hit[-answer:].all())))
        return collator.get_original(results)

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood in nats of whole texts, in windows of the context that score each token once."""
        totals = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(self.tok_encode(text), END_OF_DOCUMENT, self.context, 1)
            parts = [(("", text), context, answer) for context, answer in map(make_disjoint_window, windows)]
            rows, results = [(context + answer, len(answer)) for _, context, answer in parts], 0.0
            for first in range(0, len(rows), self.batch):
                chunk = rows[first : first + self.batch]
                found = self._batched([row for row, _ in chunk])
                results -= sum(
                    float(loss[-size:].double().sum()) for (_, size), (loss, _) in zip(chunk, found, strict=True)
                )
            totals.append(results)
        return totals

    @torch.no_grad()
    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations up to a stop text, the end mark or the asked number of tokens."""
        texts, device = [], next(self.model.parameters()).device
        for prompt, asked in (request.args for request in requests):
            settings = normalize_gen_kwargs(asked)
            if settings["do_sample"]:
                raise UserError("sampling is not supported: generation is greedy (do_sample: false, temperature: 0)")
            row, made, text = [END_OF_DOCUMENT, *self.tok_encode(prompt)], [], ""
            while len(made) < settings["max_gen_toks"]:
                logits = self.model(torch.tensor([row[-self.context :]], device=device))
                token = int(logits[0, -1].argmax())
                if token == END_OF_DOCUMENT:
                    break
                row.append(token)
                made.append(token)
                text = self.tokens.decode(made)
                if any(stop and stop in text for stop in settings["until"]):
                    break
            texts.append(postprocess_generated_text(text, settings["until"], None))
        return texts

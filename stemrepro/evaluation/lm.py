"""Our checkpoints as a model of lm-eval, so that its own code scores them.

    from lm_eval import simple_evaluate
    from stemrepro.evaluation.lm import StemLM, task_manager

    lm = StemLM.from_folder("runs/laptop/main/stem-full/seed0", "data/laptop/tokenizer.json")
    simple_evaluate(lm, tasks=["openbookqa", "atlas_capital"], task_manager=task_manager("data/text-8/items"))

Every text is scored as the start of a document: after the end mark, as in training. A prompt that is longer than the
context loses its beginning (as in lm-eval's own models) and is counted; an answer that is longer is refused.

A prompt is read once for all its answers, which stand behind it in one row of tokens. An answer attends to its prompt
and to itself, and its positions continue the prompt's: its log-likelihood is that of the answer in a row of its own.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.common.sums import total
from stemrepro.evaluation.run_tokenizer import tokenizer_from
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.generate import continuations
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder

TASKS = Path(__file__).with_name("tasks")
Request = tuple[list[int], list[int]]  # tokens of a prompt and of an answer; neither is empty


def task_manager(items: Path | str, hub: bool = False) -> TaskManager:
    """Return lm-eval's task manager with our tasks; `items` is the folder that `stemrepro data items` wrote.

    With `hub` lm-eval's own tasks, which read the Hugging Face hub, replace those of the pinned archive. The names are
    the same; tasks made from the training text stay.
    """
    folders = [TASKS / "text"] if hub else [TASKS / "text", TASKS / "archive"]
    return TaskManager(include_path=folders, include_defaults=hub, metadata={"items": str(items)})


@dataclass(frozen=True)
class Row:
    """A prompt and answers to it, by the number of their request."""

    prompt: list[int]
    answers: dict[int, list[int]]

    @property
    def read(self) -> list[list[int]]:
        """Return what is read of each answer: all but its last token, which predicts nothing."""
        return [answer[:-1] for answer in self.answers.values()]

    @property
    def tokens(self) -> list[int]:
        """Return what the model reads."""
        return self.prompt + [token for read in self.read for token in read]

    @property
    def owners(self) -> list[int]:
        """Return whose each token is: 0 for the prompt, k for the k-th answer."""
        return [0] * len(self.prompt) + [owner for owner, read in enumerate(self.read, 1) for _ in read]

    @property
    def places(self) -> list[int]:
        """Return where the tokens of the answers are predicted, the first of each at the prompt's last token."""
        places, start = [], len(self.prompt)
        for read in self.read:
            places += [len(self.prompt) - 1, *range(start, start + len(read))]
            start += len(read)
        return places


def shared_rows(requests: list[Request], room: int) -> list[Row]:
    """Return rows with the requests, longest first.

    A row of several answers has up to `room` tokens. The next answer begins another row. With the longest first a batch
    has little padding.
    """
    newest: dict[tuple[int, ...], Row] = {}
    rows = []
    for number, (prompt, answer) in enumerate(requests):
        row = newest.get(tuple(prompt))
        if row is None or len(row.tokens) + len(answer) - 1 > room:
            row = newest[tuple(prompt)] = Row(prompt, {})
            rows.append(row)
        row.answers[number] = answer
    return sorted(rows, key=lambda row: -len(row.tokens))


def sharing_mask(owners: Tensor) -> Tensor:
    """Return what each token attends to, the prompt and its own answer up to itself: owners [B, T] -> [B, 1, T, T]."""
    seen = (owners[:, None, :] == 0) | (owners[:, None, :] == owners[:, :, None])
    return (seen & torch.ones_like(seen[0]).tril())[:, None]


class StemLM(TemplateLM):  # type: ignore[misc]
    """A decoder and its tokenizer under lm-eval's interface."""

    def __init__(self, model: Decoder, tokenizer: Tokenizer, context: int, batch: int = 64) -> None:
        super().__init__()
        self.model, self.tokens, self.context, self.batch = model.eval(), tokenizer, context, batch
        self.shares = model.caches and not model.config.document_mask  # else a prompt is read once for each answer
        self.truncated = 0  # requests so far whose prompt lost its beginning
        self.on_batch: Callable[[int, float], None] | None = None
        """Called with (tokens, mean loss in nats) after each batch, in place of lm-eval's own progress bar."""

    @classmethod
    def from_folder(cls, folder: Path | str, tokenizer: Path | str, batch: int = 64) -> "StemLM":
        """Return the trained model of a run folder; raises UserError as load_folder and tokenizer_from do."""
        model, context = load_folder(Path(folder))
        return cls(model, tokenizer_from(Path(tokenizer), Path(folder)), context, batch)

    @property
    def eot_token_id(self) -> int:
        """Return the end mark, which also begins every text."""
        return END_OF_DOCUMENT

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: object) -> list[int]:
        """Return the tokens of a text, without marks."""
        return self.tokens.encode(string).ids

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return the log-likelihood in nats of each answer after its prompt, and whether greedy decoding gives it."""
        return super().loglikelihood(requests, disable_tqdm or self.on_batch is not None)

    def _cut(self, context: list[int], answer: list[int], text: str) -> list[int]:
        """Return the prompt with its end mark; the newest tokens that leave the answer room in the context."""
        if not 0 < len(answer) <= self.context:
            raise UserError(
                f"an answer of {len(answer)} tokens ('{text.strip()[:60]}...') is empty or longer than the model's "
                f"context of {self.context}; leave that task out of the scale's benchmarks or give it a longer sequence"
            )
        mark = [] if context[:1] == [END_OF_DOCUMENT] else [END_OF_DOCUMENT]
        prompt, room = [*mark, *context], self.context + 1 - len(answer)
        self.truncated += len(prompt) > room
        return prompt[-room:]

    @torch.no_grad()
    def _read(self, rows: list[Row]) -> tuple[Tensor, Tensor]:
        """Return of all tokens of all answers, one after the other, the loss and whether it is the most probable one.

        Padding is on the right, where a causal model can't see it.
        """
        device, size = next(self.model.parameters()).device, max(len(row.tokens) for row in rows)

        def padded(values: list[list[int]]) -> Tensor:
            return torch.tensor([value + [END_OF_DOCUMENT] * (size - len(value)) for value in values], device=device)

        shared = any(len(row.answers) > 1 for row in rows)
        mask = sharing_mask(padded([row.owners for row in rows])) if shared else None
        hidden = self.model.hidden(padded([row.tokens for row in rows]), mask=mask).flatten(0, 1)
        places = [number * size + place for number, row in enumerate(rows) for place in row.places]
        wanted = [token for row in rows for answer in row.answers.values() for token in answer]
        targets, logits = torch.tensor(wanted, device=device), self.model.head(hidden[places])
        return token_losses(logits[None], targets[None])[0].cpu(), (logits.argmax(-1) == targets).cpu()

    def _score(self, requests: list[Request]) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each answer after its prompt, and whether greedy decoding gives it."""
        results = [(0.0, False)] * len(requests)
        rows = shared_rows(requests, self.context if self.shares else 0)
        for first in range(0, len(rows), self.batch):
            chunk = rows[first : first + self.batch]
            losses, hits = self._read(chunk)
            if not losses.isfinite().all():
                raise UserError("the model gives log-likelihoods that are not finite; its weights are damaged")
            answers = {number: len(answer) for row in chunk for number, answer in row.answers.items()}
            parts = zip(losses.double().split([*answers.values()]), hits.split([*answers.values()]), strict=True)
            for number, (loss, hit) in zip(answers, parts, strict=True):
                results[number] = -float(loss.sum()), bool(hit.all())
            if self.on_batch:
                self.on_batch(len(losses), float(losses.double().mean()))
        return results

    def _loglikelihood_tokens(self, requests: list[Any], **_: object) -> list[tuple[float, bool]]:
        return self._score([(self._cut(context, answer, text[1]), answer) for text, context, answer in requests])

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood in nats of whole texts, in windows of the context that score each token once."""
        totals = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(self.tok_encode(text), END_OF_DOCUMENT, self.context, 1)
            totals.append(total(score for score, _ in self._score([*map(make_disjoint_window, windows)])))
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return greedy continuations up to a stop text, the end mark or the requested number of tokens.

        Requests with equal settings and prompts of equal length go together. UserError: a request asks for a sampled
        one.
        """
        rows, together = [], defaultdict[tuple[int, str], list[int]](list)
        for number, (prompt, given) in enumerate(request.args for request in requests):
            rows.append(([END_OF_DOCUMENT, *self.tok_encode(prompt)], normalize_gen_kwargs(given)))
            together[len(rows[-1][0]), repr(sorted(rows[-1][1].items()))].append(number)
        texts: dict[int, str] = {}
        for numbers in together.values():
            settings = rows[numbers[0]][1]
            if settings["do_sample"]:
                raise UserError("generation: only greedy continuations are served; set do_sample: false")
            for first in range(0, len(numbers), self.batch):
                part = numbers[first : first + self.batch]
                continued = self._continued([rows[number][0] for number in part], settings)
                texts |= dict(zip(part, continued, strict=True))
        return [texts[number] for number in range(len(rows))]

    def _continued(self, prompts: list[list[int]], settings: dict[str, Any]) -> list[str]:
        device = next(self.model.parameters()).device
        generated: list[list[int]] = [[] for _ in prompts]
        texts, stops = [""] * len(prompts), [stop for stop in settings["until"] if stop]
        for tokens in continuations(
            self.model, torch.tensor(prompts, device=device), settings["max_gen_toks"], context=self.context
        ):
            for place, token in enumerate(tokens.tolist()):
                if token != END_OF_DOCUMENT:
                    generated[place].append(token)
                    texts[place] = self.tokens.decode(generated[place])
            ended = tokens == END_OF_DOCUMENT
            if all(bool(end) or any(stop in text for stop in stops) for end, text in zip(ended, texts, strict=True)):
                break
        return [postprocess_generated_text(text, settings["until"], None) for text in texts]

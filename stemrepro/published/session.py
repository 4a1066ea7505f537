"""A published model to explore, as a run is: continuations of a prompt, and its answers when it reads another name."""

from stemrepro.evaluation.edit_session import EditSession
from stemrepro.published.models import Model


class PublishedSession(EditSession):
    """A published model, of which any name may be asked."""

    def __init__(self, model: Model) -> None:
        self.model, self.tokenizer = model.decoder, model.tokenizer
        self.context, self.names = None, ()

"""Takes documents from a dataset of the Hugging Face hub, and records which commit of it was read.

What comes out goes through the same corpus, tokenizer and block steps as the pinned archives. Documents are taken in the
dataset's order until there is enough text, so that with `streaming` nothing beyond that is downloaded. The corpus step
holds its documents in memory: this is for gigabytes, not terabytes.
"""

import json
import os
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from stemrepro.data.mixes import HubMix
from stemrepro.errors import UserError
from stemrepro.files import digest, read_json, sha256, write_json


def resolved_revision(mix: HubMix) -> str:
    """The commit that `mix.revision` stands for now; for a local folder a hash of its files.

    Raises:
        UserError: the hub can't be reached or knows no such dataset or revision.
    """
    if (local := Path(mix.dataset)).is_dir():
        files = sorted(path for path in local.rglob("*") if path.is_file())
        return "local-" + digest({path.relative_to(local).as_posix(): sha256(path) for path in files})
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(mix.dataset, revision=mix.revision).sha
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"dataset '{mix.dataset}' at revision '{mix.revision}' can't be read from the hub ({reason}); check the name "
            f"in recipes/mixes.yaml and the network, or give a folder that holds a copy"
        ) from error


def take(mix: HubMix, folder: Path) -> None:
    """Writes `folder`/documents.jsonl ({"id", "text"}) and, last, `folder`/hub.json: what was asked for, the commit that
    was read, documents and bytes. A folder whose hub.json asks for the same is left alone, without network.

    Raises:
        UserError: no such dataset, configuration, split or column; no network; no text in it.
    """
    about, asked = folder / "hub.json", mix.model_dump(mode="json")
    if about.exists() and read_json(about)["asked"] == asked:
        return
    about.unlink(missing_ok=True)
    from datasets import load_dataset

    revision = resolved_revision(mix)
    pinned = None if revision.startswith("local-") else revision
    try:
        rows = load_dataset(mix.dataset, mix.config, split=mix.split, revision=pinned, streaming=mix.streaming)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"dataset '{mix.dataset}' (config {mix.config}, split {mix.split}): {reason}") from error
    limit, size, count = mix.megabytes * 10**6, 0, 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    unfinished = folder / "documents.jsonl.part"
    with open(unfinished, "w") as file, Progress(*columns, transient=True) as progress:
        bar = progress.add_task(mix.dataset, total=limit)
        for number, row in enumerate(rows):
            if mix.text not in row:
                raise UserError(f"dataset '{mix.dataset}' has no column '{mix.text}'; it has {', '.join(row)}")
            if text := (row[mix.text] or "").strip():
                file.write(json.dumps({"id": f"{number:09d}", "text": text}, ensure_ascii=False) + "\n")
                size, count = size + len(text.encode()), count + 1
                progress.update(bar, completed=min(size, limit))
            if size >= limit:
                break
        file.flush()
        os.fsync(file.fileno())
    if not count:
        raise UserError(f"dataset '{mix.dataset}' (split {mix.split}) has no text in column '{mix.text}'")
    unfinished.replace(folder / "documents.jsonl")
    write_json(about, {"asked": asked, "revision": revision, "documents": count, "bytes": size})

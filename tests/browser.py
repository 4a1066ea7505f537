"""Chromium without a window: pages are tested and photographed with it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stemrepro.common.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser: one of the machine's own, else the one that `playwright install chromium` fetched.

    Raises:
        UserError: there is neither, or no playwright.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise UserError("this needs playwright: pip install -e '.[dev]'") from error
    own = next((path for name in NAMES if (path := shutil.which(name))), None)
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses root otherwise
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=own, args=sandbox)
        except Error as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"this needs Chromium: playwright install chromium ({reason})") from error
        yield browser
        browser.close()

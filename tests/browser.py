"""Chromium without a window: pages are tested and photographed with it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser: one of the machine's own, else the one that `playwright install chromium` fetched.

    Where there is neither, the test is skipped.
    """
    from playwright.sync_api import Error, sync_playwright

    own = next((path for name in NAMES if (path := shutil.which(name))), None)
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses root otherwise
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=own, args=sandbox)
        except Error as error:
            pytest.skip(f"this needs Chromium: playwright install chromium ({str(error).splitlines()[0]})")
        yield browser
        browser.close()

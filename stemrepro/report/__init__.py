"""From contrasts to verdicts, figures and pages."""

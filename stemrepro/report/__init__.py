"""From effects to verdicts, figures and pages."""

"""The one exception that means "the input is wrong": the command line prints its sentence and exits with 2."""


class UserError(Exception):
    """Bad input. The message is one sentence that names the file, the key or the value and says what would be right."""

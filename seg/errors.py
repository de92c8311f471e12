"""The one exception that means: the user must change something."""


class UserError(Exception):
    """Bad input. The message says what was given, what was expected, which file or key, and what to do.

    The tools print it without a traceback and exit with code 2. It takes one string, so that it survives the trip out
    of a loader worker.
    """

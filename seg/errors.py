"""The exceptions whose message is all there is to say: a tool prints it once, and no traceback."""


class UserError(Exception):
    """Bad input. The message says what was given, what was expected, which file or key, and what to do.

    The tools print it without a traceback and exit with code 2. It takes one string, so that it survives the trip out
    of a loader worker; torch sends the worker's traceback along as the message, of which only the end is ours.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_own_words(message, type(self)))


class RunError(RuntimeError):
    """A run that failed for a reason that is known, on one rank or on all of them; exit code 1."""


class BadFileError(UserError):
    """An image or a mask that is missing, empty or damaged. The message begins with its path."""


def _own_words(message: str, kind: type[Exception]) -> str:
    if not (message.startswith('Caught ') and '\nOriginal Traceback' in message):
        return message
    return message.rpartition(f'\n{kind.__module__}.{kind.__qualname__}: ')[2].rstrip('\n')

"""EXIF orientation: turn what a camera stored into what a viewer shows."""

import numpy as np

_UNDO = {6: 8, 8: 6}  # every other orientation undoes itself


def turn(array: np.ndarray, orientation: int) -> np.ndarray:
    """HW or HWC as stored -> as shown, for an EXIF orientation of 1 to 8. A view where it can be.

    Source: Exif 2.32, tag 0x0112: where the stored row 0 and column 0 are shown.
    """
    if orientation >= 5:
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return array


def turn_back(array: np.ndarray, orientation: int) -> np.ndarray:
    """HW or HWC as shown -> as stored."""
    return turn(array, _UNDO.get(orientation, orientation))

"""Colours to draw classes in."""


def default_palette(num_classes: int) -> list[list[int]]:
    """Distinct RGB colours, black first: PASCAL VOC's, which spread a number's bits over the three channels."""
    return [_colour(number) for number in range(num_classes)]


def _colour(number: int) -> list[int]:
    channels = [0, 0, 0]
    for shift in range(7, -1, -1):
        for channel in range(3):
            channels[channel] |= (number >> channel & 1) << shift
        number >>= 3
    return channels

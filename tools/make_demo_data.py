"""Draw made-up cars in Carvana's layout: `python tools/make_demo_data.py OUT`."""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main


def size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d{1,6})x(\d{1,6})', text)
    if match is None:
        raise argparse.ArgumentTypeError(f'expected WIDTHxHEIGHT in pixels, such as 480x320, got {text!r}')
    return int(match[1]), int(match[2])


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description="Draw made-up cars in Carvana's layout: OUT/train, OUT/train_masks, OUT/val, OUT/val_masks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument('out', metavar='OUT', type=Path, help='the folder; made where it is missing')
    p.add_argument('--cars', type=int, default=40, metavar='N', help='cars to train on')
    p.add_argument('--val-cars', type=int, default=8, metavar='N', help='held-out cars')
    p.add_argument('--views', type=int, default=8, metavar='N', help='photographs of each car, all around it')
    p.add_argument('--size', type=size, default='480x320', metavar='WxH', help='of a photograph, in pixels')
    p.add_argument('--seed', type=int, default=0, metavar='N', help='another seed draws other cars')
    p.add_argument('--force', action='store_true', help='draw again, and into a folder that holds other files too')
    return p


def run(args: argparse.Namespace) -> None:
    from seg.datasets.demo_cars import Settings, write_demo_cars

    settings = Settings(args.cars, args.val_cars, args.views, args.size, args.seed)
    print(write_demo_cars(args.out, settings, args.force))


if __name__ == '__main__':
    sys.exit(main(parser(), run))

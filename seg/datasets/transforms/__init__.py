"""Geometry and colour on uint8 arrays; one technique a file. Names and arguments are mmcv's and mmseg's.

A transform takes and returns the results dict: `img` H x W x C, RGB where C is 3, and, once the annotations are
loaded, `gt_seg_map` H x W with 255 = ignore. Random ones draw from numpy's global generator alone, which
`seg.datasets.seeding` seeds for each sample.
"""

"""Laying a generated picture over the picture it was made from: shifts, zooms, a little skew.

Edit models return another size and drift by a few pixels or percent. Two steps: mazes are lines along the axes, so the
sums of rows and of columns, compared over all zooms and shifts in reach, find the place without a local minimum; then
OpenCV's ECC (enhanced correlation coefficient, blind to brightness and contrast) refines it to a fraction of a pixel.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

COARSE = 160  # pixels a side at which places are compared
REACH = 0.10  # of the side: how far a shift is looked for
ZOOMS = np.linspace(0.90, 1.10, 41)


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """`image` at side x side pixels: averaged where it shrinks, interpolated where it grows."""
    if image.shape[:2] == (side, side):
        return image
    shrinks = min(image.shape[:2]) > side
    return cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def coarse(channel: np.ndarray) -> np.ndarray:
    """One channel, uint8 [side, side], at the size at which places are compared; float32 [COARSE, COARSE]."""
    return resized(channel, COARSE).astype(np.float32)


def register(small: np.ndarray, expected: np.ndarray, side: int) -> np.ndarray:
    """The affine map from places in the reference to places in the image, float64 [2, 3], both of `side` pixels.

    small, expected: both `coarse`; what is the same in both should look alike in them, what is not should be faint.
    Where nothing fits, the result is what fits least badly: the caller compares afterwards.
    """
    begin = np.zeros((2, 3), dtype=np.float32)
    for axis in (0, 1):
        zoom, shift = _along_one_axis(small.mean(axis=axis), expected.mean(axis=axis))
        begin[axis, axis], begin[axis, 2] = zoom, shift
    found = begin.astype(np.float64)
    until = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 12, 1e-4)
    try:
        before = _correlation(small, expected, found)
        everywhere = np.ones(expected.shape, dtype=np.uint8)
        _, fine = cv2.findTransformECC(expected, small, begin.copy(), cv2.MOTION_AFFINE, until, everywhere, 3)
        if np.abs(fine[:, :2] - np.eye(2)).max() < 0.15 and _correlation(small, expected, fine) >= before:
            found = fine.astype(np.float64)
    except cv2.error:  # it has not converged: nothing like the reference is there
        pass
    # From COARSE pixels to pixels of the reference, with whole numbers at the middle of pixels.
    k = side / COARSE
    found[:, 2] = k * found[:, 2] + (found[:, :2].sum(axis=1) - 1) * (1 - k) / 2
    return found


def warped(image: np.ndarray, found: np.ndarray) -> np.ndarray:
    """`image` laid over the reference; itself where it lies within a fifth of a pixel already."""
    side = image.shape[0]
    corners = np.array([[0, 0, 1], [side, 0, 1], [0, side, 1], [side, side, 1]], dtype=np.float64)
    if np.abs(corners @ found.T - corners[:, :2]).max() < 0.2:
        return image
    return cv2.warpAffine(
        image, found, (side, side), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
    )


def _along_one_axis(seen: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """(zoom, shift) that make seen[zoom * i + shift] most like expected[i]; (1, 0) unless another is clearly better."""
    n = len(expected)
    at = np.arange(n)
    # The zoomed template, for every zoom a row, then all shifts at once through the Fourier transform.
    places = (at[None] - (n - 1) / 2) / ZOOMS[:, None] + (n - 1) / 2
    templates = np.interp(places, at, expected)
    templates -= templates.mean(axis=1, keepdims=True)
    templates /= np.linalg.norm(templates, axis=1, keepdims=True) + 1e-9
    level = np.concatenate([seen[:4], seen[-4:]]).mean()
    spectrum = np.fft.rfft(seen - level, 2 * n)
    likeness = np.fft.irfft(spectrum * np.conj(np.fft.rfft(templates, 2 * n, axis=1)), 2 * n, axis=1)
    reach = int(REACH * n)
    likeness = np.concatenate([likeness[:, -reach:], likeness[:, : reach + 1]], axis=1)
    row, column = divmod(int(likeness.argmax()), likeness.shape[1])
    middle = len(ZOOMS) // 2
    if likeness[row, column] <= 1.02 * likeness[middle, reach]:
        return 1.0, 0.0
    zoom = float(ZOOMS[row])
    return zoom, column - reach + (n - 1) / 2 * (1 - zoom)


def _correlation(image: np.ndarray, expected: np.ndarray, found: np.ndarray) -> float:
    side = expected.shape[0]
    laid = cv2.warpAffine(image, found.astype(np.float64), (side, side), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                          borderMode=cv2.BORDER_REPLICATE)  # fmt: skip
    one, other = (m.ravel() - m.mean() for m in (laid, expected))
    return float(one @ other / math.sqrt(float(one @ one) * float(other @ other) + 1e-9))

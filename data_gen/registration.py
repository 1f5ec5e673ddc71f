"""Laying a generated image over the image it was made from: shifts, zooms, a little skew.

Edit models return another size and drift by a few pixels or percent. There are two steps. Mazes are lines along the
axes, so the first step compares the sums of rows and of columns. It tries all zooms and shifts in reach, so it cannot
end in a local minimum. Then OpenCV's ECC (enhanced correlation coefficient, blind to brightness and contrast) refines
the place to a fraction of a pixel.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

COARSE = 160  # pixels a side at which ECC works
SAMPLES = 320  # of the sums of rows and of columns
REACH = 0.10  # of the side: how far a shift is looked for
ZOOMS = np.linspace(0.90, 1.10, 21)
SURE = 0.9  # correlation with the input from which a place needs no second opinion


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """`image` at side x side pixels: averaged where it shrinks, interpolated where it grows."""
    if image.shape[:2] == (side, side):
        return image
    while min(image.shape[:2]) >= 2 * side:  # halving is what OpenCV averages fast
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
    if min(image.shape[:2]) > side:
        image = cv2.GaussianBlur(image, (3, 3), 0.6)
    return cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR)


class Template:
    """What an image is laid over: one channel of the input, uint8 [side, side], prepared once.

    What is the same in input and output should look alike in that channel, what is not should be faint.
    """

    def __init__(self, channel: np.ndarray) -> None:
        self.side = channel.shape[0]
        self.small = resized(channel, COARSE).astype(np.float32)
        at = np.arange(SAMPLES)
        places = (at - (SAMPLES - 1) / 2) / ZOOMS[:, None] + (SAMPLES - 1) / 2
        self.spectra = []
        for sums in _sums(channel):
            zoomed = np.interp(places, at, sums)
            zoomed -= zoomed.mean(axis=1, keepdims=True)
            zoomed /= np.linalg.norm(zoomed, axis=1, keepdims=True) + 1e-9
            self.spectra.append(np.conj(np.fft.rfft(zoomed, 2 * SAMPLES, axis=1)))

    def register(self, channel: np.ndarray) -> np.ndarray:
        """The affine map from places in the input to places in an output, float64 [2, 3].

        channel: the same channel of the output, uint8 [side, side]. If nothing matches, the result is the best of the
        poor matches: the caller checks it.
        """
        affine = np.zeros((2, 3))
        for axis, (sums, spectra) in enumerate(zip(_sums(channel), self.spectra, strict=True)):
            zoom, shift = _along_one_axis(sums, spectra)
            affine[axis, axis], affine[axis, 2] = zoom, _rescaled(zoom, shift, COARSE / SAMPLES)
        small = resized(channel, COARSE).astype(np.float32)
        until = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 12, 1e-4)
        try:
            everywhere = np.ones(small.shape, dtype=np.uint8)
            begin = affine.astype(np.float32)
            likeness, fine = cv2.findTransformECC(self.small, small, begin, cv2.MOTION_AFFINE, until, everywhere, 3)
            sane = np.abs(fine[:, :2] - np.eye(2)).max() < 0.15
            if sane and (likeness > SURE or self._likeness(small, fine) >= self._likeness(small, affine)):
                affine = fine.astype(np.float64)
        except cv2.error:  # it has not converged: nothing like the input is there
            pass
        affine[:, 2] = _rescaled(affine[:, :2].sum(axis=1), affine[:, 2], self.side / COARSE)
        return affine

    def _likeness(self, small: np.ndarray, affine: np.ndarray) -> float:
        laid = cv2.warpAffine(small, affine.astype(np.float64), (COARSE, COARSE), borderMode=cv2.BORDER_REPLICATE,
                              flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)  # fmt: skip
        ours, theirs = (m.ravel() - m.mean() for m in (laid, self.small))
        return float(ours @ theirs / math.sqrt(float(ours @ ours) * float(theirs @ theirs) + 1e-9))


def warped(image: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """`image` laid over the reference; itself where it lies within a fifth of a pixel already."""
    side = image.shape[0]
    corners = np.array([[0, 0, 1], [side, 0, 1], [0, side, 1], [side, side, 1]], dtype=np.float64)
    if np.abs(corners @ affine.T - corners[:, :2]).max() < 0.2:
        return image
    return cv2.warpAffine(
        image, affine, (side, side), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
    )


def _sums(channel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means of columns and of rows, float32 [SAMPLES] each."""
    columns = cv2.reduce(channel, 0, cv2.REDUCE_AVG, dtype=cv2.CV_32F).ravel()
    rows = cv2.reduce(channel, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F).ravel()
    at = (np.arange(SAMPLES) + 0.5) * len(columns) / SAMPLES - 0.5
    return np.interp(at, np.arange(len(columns)), columns), np.interp(at, np.arange(len(rows)), rows)


def _rescaled(zoom: np.ndarray | float, shift: np.ndarray | float, k: float) -> np.ndarray | float:
    """The shift of x -> zoom * x + shift where k pixels come on an old one; the middle of a pixel is a whole number."""
    return k * shift + (zoom - 1) * (1 - k) / 2


def _along_one_axis(seen: np.ndarray, spectra: np.ndarray) -> tuple[float, float]:
    """(zoom, shift) that make seen[zoom * i + shift] most like the input; (1, 0) unless another is clearly better.

    All shifts are compared at once through the Fourier transform, for every zoom of the template a row.
    """
    level = np.concatenate([seen[:4], seen[-4:]]).mean()
    likeness = np.fft.irfft(np.fft.rfft(seen - level, 2 * SAMPLES) * spectra, 2 * SAMPLES, axis=1)
    reach = int(REACH * SAMPLES)
    likeness = np.concatenate([likeness[:, -reach:], likeness[:, : reach + 1]], axis=1)
    row, column = divmod(int(likeness.argmax()), likeness.shape[1])
    if likeness[row, column] <= 1.02 * likeness[len(ZOOMS) // 2, reach]:
        return 1.0, 0.0
    zoom = float(ZOOMS[row])
    return zoom, column - reach + (SAMPLES - 1) / 2 * (1 - zoom)

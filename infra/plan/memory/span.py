"""A number with its range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Span:
    """A number that is not exact: low, expected and high, in one unit."""

    low: float
    expected: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(low=self.low + other.low, expected=self.expected + other.expected, high=self.high + other.high)

    def scaled(self, factor: float) -> Span:
        return Span(low=self.low * factor, expected=self.expected * factor, high=self.high * factor)

    @classmethod
    def exact(cls, value: float) -> Span:
        return cls(low=value, expected=value, high=value)

    @classmethod
    def maximum(cls, *spans: Span) -> Span:
        """The largest of them, end by end: the peak over phases that follow one another."""
        return cls(
            low=max(span.low for span in spans),
            expected=max(span.expected for span in spans),
            high=max(span.high for span in spans),
        )


NOTHING = Span.exact(0.0)

"""What a session has tried, and what was lost: one line per fault, printed at its end."""

from dataclasses import dataclass, field


@dataclass
class Row:
    tried: int = 0
    acknowledged: int = 0
    lost: int = 0


@dataclass
class Tally:
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, fault: str, *, tried: int = 1, acknowledged: int = 0, lost: int = 0) -> None:
        """Count a fault, the writes acknowledged before it, and those of them that were lost."""
        row = self.rows.setdefault(fault, Row())
        row.tried += tried
        row.acknowledged += acknowledged
        row.lost += lost

    def lines(self) -> list[str]:
        width = max(map(len, self.rows), default=0)
        return [
            f"{fault:<{width}}  tried {row.tried:>5}  acknowledged {row.acknowledged:>8}  "
            f"lost {row.lost:>3}"
            for fault, row in self.rows.items()
        ]


TALLY = Tally()

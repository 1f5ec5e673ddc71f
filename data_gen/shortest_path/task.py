"""Shortest path: draw the path with the least sum of lengths between two nodes of a graph; the only one.

Nodes lie on a lattice, edges join neighbours. Levels 1 to 4 have 3 x 3 to 6 x 6 nodes. Lengths are digits; in the style
nano (levels 1 and 2) they are 1 to 3 dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.data_gen.canvas import BLUE, GREEN, INK, PAPER, RED, Canvas, colours_at
from uni_train.data_gen.puzzle import NANO, UNITS, Facts, Problem, Puzzle, State
from uni_train.data_gen.registry import scoring_beside, task

if TYPE_CHECKING:
    import networkx

SIDES = {1: 3, 2: 4, 3: 5, 4: 6}
TIED = 3  # paths with the fewest edges there are at least, or none of them is the shortest
KEPT = 0.8  # of the edges of the lattice
_NODE, _EDGE = (60, 65, 80), (150, 155, 165)
_LABEL, _END = 6, 9  # units: half the sides of a number's place, of the first and last node
_NANO_EDGE, _DOTS = (200, 205, 215), ((1, 1), (2, 2), (1, 2))


@task("shortest_path")
@dataclass(frozen=True)
class ShortestPath(Puzzle):
    """Mark the shortest path; that it joins both nodes, that it is one path, and its length are checked."""

    name = "shortest_path"
    title = "Shortest paths"
    sets, variants, chance = scoring_beside(__file__)
    nano_levels = (1, 2)
    lazy_ways = ("copy of the input", "all edges", "fewest edges")

    def problem(self, random: Random, level: int) -> Problem:
        import networkx

        n, longest = SIDES[level], 3 if self.style == NANO else 9
        while True:
            edges = [
                (a, b, random.randint(1, longest)) for a in range(n * n) for b in (a + 1, a + n)
                if b < n * n and (b == a + n or b % n) and random.random() < KEPT
            ]  # fmt: skip
            graph = graph_of(edges)
            start, goal = random.sample(range(n * n), 2)
            if start not in graph or goal not in graph or not networkx.has_path(graph, start, goal):
                continue
            paths = networkx.all_shortest_paths(graph, start, goal, weight="weight")
            path, fewest = next(paths), list(networkx.all_shortest_paths(graph, start, goal))
            counting_edges_fails = path not in fewest or len(fewest) >= TIED
            if counting_edges_fails and next(paths, None) is None:
                break
        steps = [tuple(sorted(pair)) for pair in pairwise(path)]
        lengths = [graph[a][b]["weight"] for a, b in steps]
        spelled = " - ".join(f"row {node // n + 1} column {node % n + 1}" for node in path)
        total = f"{' + '.join(map(str, lengths))} = {sum(lengths)}"
        marks = "dots" if self.style == NANO else "numbers"
        return Problem(
            prompt=f"Mark in red the shortest path from the green to the blue node. The length of a path is the sum of "
            f"the {marks} on its edges.",
            given=[0] * len(edges),
            solution=[int((a, b) in steps) for a, b, _ in edges],
            canonical=_canonical(edges, start, goal, n),
            thought=f"The shortest path is {spelled}, with the length {total}.",
            answer=spelled,
            facts={"edges": [list(edge) for edge in edges], "start": start, "goal": goal, "nodes": n, "path": path},
        )

    def size(self, facts: Facts) -> tuple[int, int]:
        return (8 * facts["nodes"],) * 2 if facts["style"] == NANO else (UNITS, UNITS)

    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        nano, nodes = facts["style"] == NANO, _nodes(facts)
        for (a, b, length), marked in zip(facts["edges"], state, strict=True):
            (y, x), (y1, x1) = nodes[a], nodes[b]
            middle = ((y + y1) / 2, (x + x1) / 2)
            if nano:
                top, left = round(middle[0] - 2), round(middle[1] - 2)
                canvas.rect((top, left, top + 4, left + 4), RED if marked else _NANO_EDGE)
                for dy, dx in _DOTS[:length]:
                    canvas.rect((top + dy, left + dx, top + dy + 1, left + dx + 1), INK)
                continue
            half = 4 if marked else 2
            canvas.rect((y - half, x - half, y1 + half, x1 + half), RED if marked else _EDGE)
            canvas.rect((middle[0] - _LABEL, middle[1] - _LABEL, middle[0] + _LABEL, middle[1] + _LABEL), PAPER)
            canvas.text(middle, str(length), 8)
        for node, (y, x) in enumerate(nodes):
            colour = {facts["start"]: GREEN, facts["goal"]: BLUE}.get(node, _NODE)
            half = 2 if nano else 6 if colour == _NODE else _END
            canvas.rect((y - half, x - half, y + half, x + half), colour)

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        """An edge is marked if the mean colour beside its number is nearer to red."""
        nodes, nano = _nodes(facts), facts["style"] == NANO
        boxes = []
        for a, b, _ in facts["edges"]:
            (y, x), (y1, x1) = nodes[a], nodes[b]
            middle, pitch = ((y + y1) / 2, (x + x1) / 2), y1 - y + x1 - x
            # nano: the block's corner, which has no dot; plain: half way from the number to the second node
            off = -1.5 if nano else (pitch / 2 - _END + _LABEL) / 2
            spot = (middle[0] + off * (nano or y1 > y), middle[1] + off * (nano or x1 > x))
            half = 0.5 if nano else 1.5
            boxes.append((spot[0] - half, spot[1] - half, spot[0] + half, spot[1] + half))
        palette = (_NANO_EDGE if nano else _EDGE, RED)
        return colours_at(image, np.rint(boxes).astype(int), palette).tolist()

    def breaches(self, facts: Facts, state: State) -> list[str]:
        graph = graph_of([edge for edge, marked in zip(facts["edges"], state, strict=True) if marked])
        ends = {facts["start"], facts["goal"]}
        if not ends <= set(graph):
            return ["the red path does not reach both nodes"]
        import networkx

        odd = [node for node, degree in graph.degree if degree != (1 if node in ends else 2)]
        return ["red is not one path"] if odd or not networkx.is_connected(graph) else []

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        pairs = [[a, b] for a, b, _ in facts["edges"]]
        state = [0] * len(pairs)
        yield tuple(state)
        for pair in pairwise(facts["path"]):
            state[pairs.index(sorted(pair))] = 1
            yield tuple(state)

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        import networkx

        graph = graph_of(facts["edges"])
        fewest = random.choice(list(networkx.all_shortest_paths(graph, facts["start"], facts["goal"])))
        steps = [sorted(pair) for pair in pairwise(fewest)]
        return {
            "copy of the input": facts["given"],
            "all edges": [1] * len(facts["given"]),
            "fewest edges": [int([a, b] in steps) for a, b, _ in facts["edges"]],
        }


def _nodes(facts: Facts) -> list[tuple[float, float]]:
    """Middles of the nodes, in reading order."""
    n = facts["nodes"]
    pitch, first = (8, 2) if facts["style"] == NANO else ((UNITS - 48) / (n - 1), 24)
    return [(round(first + pitch * r), round(first + pitch * c)) for r in range(n) for c in range(n)]


def graph_of(edges: Sequence[Sequence[int]]) -> networkx.Graph[Any]:
    """An undirected graph of (a, b, length)."""
    import networkx

    graph: networkx.Graph[Any] = networkx.Graph()
    graph.add_weighted_edges_from(edges)
    return graph


def _canonical(edges: Sequence[tuple[int, int, int]], start: int, goal: int, n: int) -> str:
    """Equal for graphs that are one another turned or mirrored, or with start and goal exchanged."""
    views = []
    for turn in range(8):

        def seen(node: int, turn: int = turn) -> int:
            y, x = divmod(node, n)
            y, x = (x, y) if turn & 1 else (y, x)
            return n * (n - 1 - y if turn & 2 else y) + (n - 1 - x if turn & 4 else x)

        moved = sorted((*sorted((seen(a), seen(b))), length) for a, b, length in edges)
        views.append(f"{sorted((seen(start), seen(goal)))}{moved}")
    return min(views)

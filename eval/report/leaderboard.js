"use strict";
// Sorts the leaderboard by the column whose head is pressed: highest first, then lowest first. Names by the alphabet.
(() => {
  const board = document.getElementById("board");
  const body = board.tBodies[0];
  const heads = [...board.querySelectorAll("thead th[data-column]")];

  const valueOf = (row, column) => row.cells[column].dataset.value;
  const compare = (column) => (one, two) => {
    const [a, b] = [valueOf(one, column), valueOf(two, column)];
    if (column === 0) return b.localeCompare(a);
    return (a === "" ? -1 : Number(a)) - (b === "" ? -1 : Number(b));
  };

  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const column = Number(head.dataset.column);
      const up = head.getAttribute("aria-sort") === "descending";
      const rows = [...body.rows].sort(compare(column));
      body.replaceChildren(...(up ? rows : rows.reverse()));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
  }
})();

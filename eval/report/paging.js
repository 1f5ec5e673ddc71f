"use strict";
// What every gallery has: elements made of text (never of markup), pages of cards, and filters that are a form.

const element = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

// An image by its number; a block of them is read when one of it is shown.
const picture = (() => {
  const BLOCK = 48;
  const blocks = new Map();
  return (index) => {
    const block = Math.floor(index / BLOCK);
    if (!blocks.has(block)) blocks.set(block, JSON.parse(document.getElementById(`pictures-${block}`).textContent));
    return blocks.get(block)[index % BLOCK];
  };
})();

// draw: card -> its <li>. keeps: what the form asks for -> (card -> whether it is shown). noun: what cards are, for the
// count. Returns the function that filters anew.
const gallery = ({ cards, draw, keeps, noun, page: size = 24 }) => {
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const count = document.getElementById("count");
  const bars = [...document.querySelectorAll(".pages")];
  const all = cards.length.toLocaleString("en");
  let page = 0;
  let shown = cards;

  const show = () => {
    const pages = Math.max(1, Math.ceil(shown.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...shown.slice(page * size, (page + 1) * size).map(draw));
    count.textContent = shown.length === cards.length ? `${all} ${noun}` : `${shown.length.toLocaleString("en")} of ${all} ${noun}`;
    if (!shown.length) list.append(element("li", "card soft", "Nothing matches these filters."));
    for (const bar of bars) {
      bar.querySelector("span").textContent = `page ${page + 1} of ${pages}`;
      bar.querySelector("[data-step='-1']").disabled = page === 0;
      bar.querySelector("[data-step='1']").disabled = page === pages - 1;
    }
  };

  const filter = () => {
    const want = Object.fromEntries(new FormData(form));
    shown = cards.filter(keeps({ ...want, words: want.search.trim().toLowerCase() }));
    page = 0;
    show();
  };

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  for (const bar of bars) {
    bar.addEventListener("click", (event) => {
      const step = Number(event.target.dataset.step || 0);
      if (!step) return;
      page += step;
      show();
      form.scrollIntoView();
    });
  }
  return filter;
};

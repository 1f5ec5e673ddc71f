"use strict";
// The gallery: cards of samples, pages of them, filters that are a form, and links into it from the tables
// (#gallery?setting=cot&verdict=fail). What models and judges say becomes text, never markup.
(() => {
  const parse = (id) => JSON.parse(document.getElementById(id).textContent);
  const { cards, moments, names } = parse("cards");
  const MARKS = { pass: "✓", fail: "✗", unreadable: "?" };
  const CHANGES = { won: "became right", lost: "no longer right", kept: "right both times", never: "never right" };
  const [PAGE, BLOCK, SHORT] = [24, 48, 220];
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const count = document.getElementById("count");
  const chip = document.getElementById("chip");
  const bars = [...document.querySelectorAll(".pages")];

  const element = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // An image by its number; a block of them is read when one of it is shown.
  const blocks = new Map();
  const picture = (index) => {
    const block = Math.floor(index / BLOCK);
    if (!blocks.has(block)) blocks.set(block, parse(`pictures-${block}`));
    return blocks.get(block)[index % BLOCK];
  };

  // --- what is known of a card ---------------------------------------------------------------------------------------

  const last = (card) => card.answers[moments.findLast((moment) => card.answers[moment])];
  const looked = (card, moment) => (moment ? card.answers[moment] : last(card)) || {};
  const change = (card) => {
    const right = moments.map((moment) => card.answers[moment]).map((answer) => answer && answer.outcome === "pass");
    if (right.length < 2 || right.includes(undefined)) return "";
    const [first, second] = [right[0], right[right.length - 1]];
    return first ? (second ? "kept" : "lost") : second ? "won" : "never";
  };
  for (const card of cards) card.change = change(card);

  const FIELDS = {
    benchmark: (card) => card.benchmark,
    set: (card) => card.set,
    category: (card) => card.category,
    setting: (card) => card.setting,
    change: (card) => card.change,
    verdict: (card, moment) => looked(card, moment).outcome,
    cause: (card, moment) => looked(card, moment).cause,
  };
  const TITLES = { verdict: names, change: CHANGES };

  // Made when it is first searched: joining every thought would be a good part of opening the page.
  const words = (answer) => [answer.refined, answer.thought, answer.text, answer.note, ...(answer.replies || [])];
  const textOf = (card) =>
    (card.search ??= [card.id, card.prompt, card.expected, ...Object.values(card.facts || {}), ...Object.values(card.answers).flatMap(words)]
      .join("\n")
      .toLowerCase());

  // --- a card ----------------------------------------------------------------------------------------------------------

  const fold = (title, text) => {
    const details = element("details");
    details.append(element("summary", "", title), element("pre", "mono", text));
    return details;
  };

  const lines = (title, values) => {
    const details = element("details");
    const table = element("dl", "lines");
    for (const [name, value] of Object.entries(values)) table.append(element("dt", "", name), element("dd", "mono", value));
    details.append(element("summary", "", title), table);
    return details;
  };

  const shot = (index, caption, alt, className) => {
    const figure = element("figure", "shot");
    if (caption) figure.append(element("figcaption", "", caption));
    const image = element("img", className);
    image.alt = alt;
    image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth <= 96));
    image.src = picture(index);
    figure.append(image);
    return figure;
  };

  const verdictOf = (answer) => `${MARKS[answer.outcome] || "–"} ${names[answer.outcome] || answer.outcome}`;

  // The image, what was made of it, and below what was written.
  const answerOf = (card, answer, moment) => {
    const [node, shots, told] = [element("div", "answer"), element("div", "shots"), element("div", "told")];
    const verdict = verdictOf(answer);
    if (answer.image !== undefined) {
      shots.append(shot(answer.image, moment, `What was drawn for ${card.id}: ${verdict.slice(2)}`));
    } else {
      const figure = element("figure", "shot");
      if (moment) figure.append(element("figcaption", "", moment));
      if (answer.left_out || answer.text === undefined) figure.append(element("div", "empty", answer.left_out ? "image left out" : "no image"));
      shots.append(figure);
    }
    told.append(element("p", `verdict ${answer.outcome}`, verdict));
    if (answer.cause && answer.cause !== answer.outcome && answer.cause !== names[answer.outcome]) told.append(element("p", "cause", answer.cause));
    for (const [name, status, reason] of answer.checks || []) {
      told.append(element("div", "soft", `${MARKS[status] || ""} ${name}${reason ? `: ${reason}` : ""}`));
    }
    if (answer.note) told.append(element("div", "soft", answer.note));
    if (answer.by) told.append(element("div", "soft", `by ${answer.by}`));
    shots.append(told);
    node.append(shots);
    for (const [title, text] of [["answer", answer.text], ["thought", answer.thought]]) {
      if (text === undefined) continue;
      node.append(text.length > SHORT ? fold(title, text) : element("p", "thought mono", text || `(empty ${title})`));
    }
    if (answer.refined) node.append(fold("drawn from", answer.refined));
    (answer.replies || []).forEach((reply, i) => node.append(fold(`judge, reply ${i + 1}`, reply)));
    if (answer.remarks) node.append(lines("remarks", answer.remarks));
    return node;
  };

  const draw = (card) => {
    const item = element("li", "card");
    const head = element("header");
    head.append(element("b", "", card.set));
    for (const text of [card.category, card.setting, card.k && `draw ${card.k + 1}`, card.id]) {
      if (text) head.append(element("span", "", text));
    }
    if (card.change === "won" || card.change === "lost") {
      head.append(element("span", `flip ${card.change === "won" ? "pass" : "fail"}`, CHANGES[card.change]));
    }
    item.append(head, element("p", "prompt mono", card.prompt));
    if (card.expected) {
      const expected = element("p", "expected", "expected: ");
      expected.append(element("b", "", card.expected));
      item.append(expected);
    }
    const given = element("div", "shots");
    for (const place of card.given || []) given.append(shot(place, "shown", "Image shown with the prompt", "given"));
    for (const place of card.references || []) given.append(shot(place, "reference", "Image that the data give as right", "given"));
    if (given.childElementCount) item.append(given);
    const there = moments.filter((moment) => card.answers[moment]);
    const answers = element("div", there.length > 1 ? "beside" : "");
    for (const moment of there) answers.append(answerOf(card, card.answers[moment], moment));
    item.append(answers);
    if (card.facts) item.append(lines("what is known", card.facts));
    const foot = element("footer");
    const others = element("button", "plain", "all answers to this case");
    others.type = "button";
    others.addEventListener("click", () => go({ benchmark: card.benchmark, case: card.id }));
    foot.append(others);
    item.append(foot);
    return item;
  };

  // --- filters and pages -------------------------------------------------------------------------------------------------

  let page = 0;
  let shown = cards;

  const show = () => {
    const [pages, all] = [Math.max(1, Math.ceil(shown.length / PAGE)), cards.length.toLocaleString("en")];
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...shown.slice(page * PAGE, (page + 1) * PAGE).map(draw));
    count.textContent = shown.length === cards.length ? `${all} samples` : `${shown.length.toLocaleString("en")} of ${all} samples`;
    if (!shown.length) list.append(element("li", "card soft", "Nothing matches these filters."));
    for (const bar of bars) {
      bar.querySelector("span").textContent = `page ${page + 1} of ${pages}`;
      bar.querySelector("[data-step='-1']").disabled = page === 0;
      bar.querySelector("[data-step='1']").disabled = page === pages - 1;
    }
  };

  const filter = () => {
    const want = Object.fromEntries(new FormData(form));
    const words = want.search.trim().toLowerCase();
    chip.hidden = !want.case;
    chip.textContent = want.case ? `case ${want.case}` : "";
    shown = cards.filter(
      (card) =>
        Object.entries(FIELDS).every(([name, of]) => !want[name] || of(card, want.moment) === want[name]) &&
        (!want.moment || card.answers[want.moment]) &&
        (!want.case || card.id === want.case) &&
        (!words || textOf(card).includes(words)),
    );
    page = 0;
    show();
  };

  // Each list offers what exists, in the order in which it is met.
  const fill = (name, values, least) => {
    const select = form.elements[name];
    for (const value of values) select.append(new Option((TITLES[name] || {})[value] || value, value));
    select.closest("label").hidden = values.length < least;
  };
  for (const [name, of] of Object.entries(FIELDS)) {
    const values = [...new Set(cards.flatMap((card) => moments.map((moment) => of(card, moment))).filter(Boolean))];
    fill(name, name === "cause" || name === "category" ? values.sort() : values, name === "verdict" || name === "change" ? 1 : 2);
  }
  fill("moment", moments.filter(Boolean), 2);

  const go = (wanted) => {
    history.pushState(null, "", `#gallery?${new URLSearchParams(wanted)}`);
    follow();
  };

  const follow = () => {
    const [place, query] = location.hash.split("?");
    if (place !== "#gallery" || query === undefined) return;
    const wanted = new URLSearchParams(query);
    for (const field of form.querySelectorAll("[name]")) field.value = wanted.get(field.name) || "";
    filter();
    document.getElementById("gallery").scrollIntoView();
  };

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    form.elements.case.value = ""; // a reset leaves hidden fields as they are
    setTimeout(filter);
  });
  for (const bar of bars) {
    bar.addEventListener("click", (event) => {
      const step = Number(event.target.dataset.step || 0);
      if (!step) return;
      page += step;
      show();
      form.scrollIntoView();
    });
  }
  window.addEventListener("hashchange", follow);
  filter();
  follow();
})();

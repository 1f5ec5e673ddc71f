// The gallery of an evaluation, and links into it from the tables (#gallery?setting=cot&verdict=fail). Stands after
// paging.js.
(() => {
  const parse = (id) => JSON.parse(document.getElementById(id).textContent);
  const NAMES = parse("names");
  const cards = parse("cards");
  const MARKS = { pass: "✓", fail: "✗", unreadable: "?" };
  const form = document.getElementById("filters");
  const chip = document.getElementById("chip");
  const FIELDS = { benchmark: "benchmark", set: "set", category: "category", setting: "setting", verdict: "outcome", cause: "cause" };

  // Made when it is first searched: joining every thought would be a good part of opening the page.
  const textOf = (card) => card.search ??= [card.id, card.prompt, card.refined, card.thought, card.text, card.note, ...Object.values(card.facts || {}), ...(card.replies || [])].join("\n").toLowerCase();

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

  const image = (index, alt, className) => {
    const node = element("img", className);
    node.alt = alt;
    node.addEventListener("load", () => node.classList.toggle("pixels", node.naturalWidth <= 96));
    node.src = picture(index);
    return node;
  };

  const draw = (card) => {
    const item = element("li", "card");
    const head = element("header");
    head.append(element("b", "", card.set));
    if (card.category) head.append(element("span", "", card.category));
    head.append(element("span", "", card.setting));
    if (card.k) head.append(element("span", "", `draw ${card.k + 1}`));
    head.append(element("span", "", card.id));
    const shots = element("div", "shots");
    const beside = (places, caption, told) => {
      for (const place of places || []) {
        const figure = element("figure", "shot");
        figure.append(element("figcaption", "", caption), image(place, told, "given"));
        shots.append(figure);
      }
    };
    beside(card.given, "shown", "Image shown with the prompt");
    beside(card.references, "reference", "Image that the data give as right");
    const verdict = `${MARKS[card.outcome] || "–"} ${NAMES[card.outcome] || card.outcome}`;
    if (card.image !== undefined) {
      const figure = element("figure", "shot");
      figure.append(image(card.image, `What was drawn for ${card.id}: ${verdict.slice(2)}`));
      shots.append(figure);
    } else if (card.left_out || card.text === undefined) {
      const figure = element("figure", "shot");
      figure.append(element("div", "empty", card.left_out ? "image left out" : "no image"));
      shots.append(figure);
    }
    const side = element("div", "side");
    side.append(element("p", `verdict ${card.outcome}`, verdict));
    if (card.cause && card.cause !== card.outcome && card.cause !== (NAMES[card.outcome] || "")) side.append(element("p", "cause", card.cause));
    for (const [name, status, reason] of card.checks || []) {
      if (status !== "pass" || reason) side.append(element("div", "soft", `${MARKS[status] || ""} ${name}${reason ? `: ${reason}` : ""}`));
    }
    if (card.note) side.append(element("div", "soft", card.note));
    if (card.by) side.append(element("div", "soft", `by ${card.by}`));
    shots.append(side);
    item.append(head, element("p", "prompt mono", card.prompt), shots);
    if (card.text !== undefined) item.append(fold("answer", card.text));
    if (card.thought !== undefined) item.append(fold("thought", card.thought || "(empty)"));
    if (card.refined) item.append(fold("drawn from", card.refined));
    (card.replies || []).forEach((reply, i) => item.append(fold(`judge, reply ${i + 1}`, reply)));
    if (card.facts) item.append(lines("what is known", card.facts));
    if (card.remarks) item.append(lines("remarks", card.remarks));
    const foot = element("footer");
    const others = element("button", "plain", "all answers to this case");
    others.type = "button";
    others.addEventListener("click", () => go({ benchmark: card.benchmark, case: card.id }));
    foot.append(others);
    item.append(foot);
    return item;
  };

  const fill = () => {
    // Each list offers what exists, in the order in which it is met.
    for (const [name, field] of Object.entries(FIELDS)) {
      const select = form.elements[name];
      const values = [...new Set(cards.map((card) => card[field]).filter(Boolean))];
      if (name === "cause" || name === "category") values.sort();
      for (const value of values) select.append(new Option(name === "verdict" ? NAMES[value] || value : value, value));
      if (values.length < (name === "verdict" ? 1 : 2)) select.closest("label").hidden = true;
    }
  };

  const keeps = (want) => {
    chip.hidden = !want.case;
    chip.textContent = want.case ? `case ${want.case}` : "";
    return (card) =>
      Object.entries(FIELDS).every(([name, field]) => !want[name] || card[field] === want[name]) &&
      (!want.case || card.id === want.case) &&
      (!want.words || textOf(card).includes(want.words));
  };

  const go = (wanted) => {
    history.pushState(null, "", `#gallery?${new URLSearchParams(wanted)}`);
    follow();
  };

  const follow = () => {
    const [place, query] = location.hash.split("?");
    if (place !== "#gallery" || query === undefined) return;
    const wanted = new URLSearchParams(query);
    for (const name of [...Object.keys(FIELDS), "search", "case"]) form.elements[name].value = wanted.get(name) || "";
    filter();
    document.getElementById("gallery").scrollIntoView();
  };

  form.addEventListener("reset", () => (form.elements.case.value = "")); // a reset leaves hidden fields as they are
  window.addEventListener("hashchange", follow);
  fill();
  const filter = gallery({ cards, draw, keeps, noun: "samples" });
  filter();
  follow();
})();

// The gallery of a run: the cards in #cards, each with its answers before and after. Stands after paging.js.
(() => {
  const source = document.getElementById("cards");
  if (!source) return;
  const WORDS = { pass: "✓ right", fail: "✗ wrong", unreadable: "? unreadable", generation_failed: "– no image", missing: "– no record", unscored: "– not scored" };
  const told = (status) => WORDS[status] || `– ${status.replaceAll("_", " ")}`;
  const [FIRST, SECOND] = [source.dataset.first || "before", source.dataset.second || "after"];
  const SETTINGS = { normal: "Normal", cot: "CoT" };
  const CHANGES = { won: "became right", lost: "no longer right", kept: "right both times", never: "never right" };
  const cards = JSON.parse(source.textContent);

  const passed = (answer) => answer !== undefined && answer.status === "pass";
  const last = (card) => card.after || card.before;
  const change = (card) => {
    if (!card.before || !card.after) return "";
    if (passed(card.before)) return passed(card.after) ? "kept" : "lost";
    return passed(card.after) ? "won" : "never";
  };
  for (const card of cards) {
    card.change = change(card);
    card.text = [card.prompt, card.answer, card.id, card.before?.thought, card.after?.thought].join("\n").toLowerCase();
  }

  const shot = (answer, when, card) => {
    const figure = element("figure", "shot");
    figure.append(element("figcaption", "", when));
    if (answer.image !== undefined) {
      const image = element("img");
      image.src = picture(answer.image);
      image.alt = `Image ${when}, asked for ${card.answer}: ${told(answer.status).slice(2)}${answer.reason ? ` (${answer.reason})` : ""}`;
      image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth <= 96));
      figure.append(image);
    } else {
      figure.append(element("div", "empty", answer.left_out ? "image left out" : "no image"));
    }
    const verdict = element("p", `verdict ${answer.status}`, told(answer.status));
    if (answer.reason) verdict.append(element("span", "", ` ${answer.reason}`));
    figure.append(verdict);
    if (answer.thought !== undefined) {
      const long = answer.thought.length > 220;
      const thought = element(long ? "details" : "p", "thought mono");
      if (long) thought.append(element("summary", "", "thought"));
      thought.append(answer.thought || "(empty thought)");
      figure.append(thought);
    }
    return figure;
  };

  const draw = (card) => {
    const item = element("li", "card");
    const head = element("header");
    const side = card.pair ? `pair ${card.id.slice(-1)}` : "";
    head.append(element("b", "", card.set), element("span", "", SETTINGS[card.setting] || card.setting));
    if (side) head.append(element("span", "", side));
    if (card.k) head.append(element("span", "", `draw ${card.k + 1}`));
    if (card.change === "won" || card.change === "lost") head.append(element("span", `flip ${card.change === "won" ? "pass" : "fail"}`, CHANGES[card.change]));
    const answer = element("p", "answer", "expected: ");
    answer.append(element("b", "", card.answer));
    const both = element("div", "both");
    if (card.before) both.append(shot(card.before, card.after ? FIRST : "drawn", card));
    if (card.after) both.append(shot(card.after, SECOND, card));
    item.append(head, element("p", "prompt mono", card.prompt), answer, both);
    item.title = card.id;
    return item;
  };

  const keeps = (want) => (card) =>
    (!want.set || card.set === want.set) &&
    (!want.setting || card.setting === want.setting) &&
    (!want.verdict || last(card).status === want.verdict) &&
    (!want.change || card.change === want.change) &&
    (!want.words || card.text.includes(want.words));

  gallery({ cards, draw, keeps, noun: "answers" })();
})();

"use strict";
(() => {
  const COLOURS = 6; // as many as runs.css has
  const part = Object.fromEntries(
    ["content", "runs", "filter", "clear", "count", "chosen", "curves", "chart", "legend", "comparison", "command", "scores", "changed", "classes"]
      .map(id => [id, document.getElementById(id)]));
  const content = JSON.parse(part.content.textContent);
  const body = part.runs.tBodies[0];
  const rows = [...body.rows].map((element, place) => ({
    element, run: content.runs[place], box: element.querySelector("input"), text: element.textContent.toLowerCase(),
  }));
  const heads = [...part.runs.tHead.rows[0].cells].map(head => head.textContent);
  let ticked = []; // in the order in which they were ticked

  const make = (tag, text, kind = "") => {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = kind;
    return element;
  };
  const percent = share => share === null || share === undefined ? "-" : (100 * share).toFixed(1);
  const colour = place => `var(--line-${place % COLOURS})`;

  // The value by which a cell is sorted; one that is not recorded comes last.
  const valueOf = cell => {
    const text = cell.dataset.value ?? cell.textContent;
    return text === "" || text === "-" ? null : isNaN(text) ? text : Number(text);
  };
  const sort = (head, place) => {
    const down = head.getAttribute("aria-sort") === "ascending" || !head.hasAttribute("aria-sort") && head.classList.contains("number");
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = rows.map(row => [valueOf(row.element.cells[place]), row]);
    keyed.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);
      const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
      return down ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row.element));
  };

  const filter = () => {
    const words = part.filter.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      row.element.hidden = !words.every(word => row.text.includes(word));
      shown += !row.element.hidden;
    }
    part.count.textContent = `${shown} of ${rows.length} shown`;
  };

  const svg = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  // At most about six round numbers from low to high.
  const ticks = (low, high) => {
    const rough = (high - low) / 5 || 1, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(each => each * size).find(each => each >= rough);
    const found = [];
    for (let number = Math.ceil(low / step); number * step <= high * (1 + 1e-9); number++) found.push(number * step);
    return found;
  };

  const drawCurves = () => {
    const which = Number(document.querySelector("input[name=curve]:checked").value);
    const curves = ticked.map((row, place) => ({ id: row.run.id, place, points: row.run.curve.filter(point => point[which] !== null) }));
    const points = curves.flatMap(each => each.points);
    part.chart.replaceChildren();
    part.legend.replaceChildren();
    const [left, right, top, bottom] = [76, 765, 12, 262];
    const steps = points.map(point => point[0]), values = points.map(point => point[which]);
    const last = Math.max(1, ...steps), low = Math.min(...values), high = Math.max(...values);
    const span = high - low || Math.abs(high) / 10 || 1, from = low - span / 20, to = high + span / 20;
    const x = step => left + (right - left) * step / last, y = value => bottom - (bottom - top) * (value - from) / (to - from);
    if (points.length) {
      for (const value of ticks(from, to)) {
        const shown = which === 1 ? `${+(100 * value).toPrecision(4)} %` : +value.toPrecision(3);
        part.chart.append(svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }), svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, shown));
      }
      for (const step of ticks(0, last)) part.chart.append(svg("text", { x: x(step), y: bottom + 24, "text-anchor": "middle" }, step.toLocaleString("en")));
    }
    for (const { id, place, points } of curves) {
      const style = `stroke: ${colour(place)}; fill: none${place >= COLOURS ? "; stroke-dasharray: 6 4" : ""}`;
      const path = svg("path", { d: points.map((point, number) => `${number ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[which]).toFixed(1)}`).join(""), style });
      path.append(svg("title", {}, id));
      part.chart.append(path, ...points.map(point => svg("circle", { cx: x(point[0]).toFixed(1), cy: y(point[which]).toFixed(1), r: 3, style: `fill: ${colour(place)}` })));
      const entry = make("span", ""), mark = make("i", ""), end = points.at(-1);
      mark.style.background = colour(place);
      const value = end && (which === 1 ? `${percent(end[1])} %` : end[2].toPrecision(3));
      entry.append(mark, make("code", id), end ? ` ends at ${value}` : " not recorded");
      part.legend.append(entry);
    }
    part.chart.setAttribute("aria-label", curves.map(({ id, points }) => `${id}: ${points.length} evaluations`).join("; "));
  };

  const line = (...cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };
  const recalls = run => new Map(content.classes[run.classes].map(([name, images], place) => [name, { images, recall: run.recall[place] }]));

  const compare = () => {
    const [a, b] = ticked.map(row => row.run);
    part.command.textContent = `perennial runs compare ${a.id} ${b.id}`;
    const cell = (row, head) => row.element.cells[heads.indexOf(head)].textContent.trim() || "not recorded";
    const facts = ["run", "started, UTC", "result", heads[5], "95 % interval"].map(head => [head, ...ticked.slice(0, 2).map(row => cell(row, head))]);
    facts.push(["test loss", ...[a, b].map(run => run.loss === null ? "not recorded" : run.loss.toFixed(4))]);
    part.scores.replaceChildren(...facts.map(([head, ...values]) => line(make("th", head), ...values.map(value => make("td", value)))));
    const changed = content.keys.flatMap(([kind, what], place) => a.inputs[place] === b.inputs[place] ? [] :
      [line(make("td", kind), make("th", what), make("td", a.inputs[place] ?? "none"), make("td", b.inputs[place] ?? "none"))]);
    part.changed.replaceChildren(...changed.length ? changed : [line(make("td", "nothing"))]);
    const [one, other] = [recalls(a), recalls(b)];
    const found = [...new Set([...one.keys(), ...other.keys()])].map(name => {
      const [left, right] = [one.get(name), other.get(name)];
      const known = [left?.recall, right?.recall].every(each => each !== null && each !== undefined);
      return { name, left, right, change: known ? right.recall - left.recall : null };
    }).sort((left, right) => Math.abs(right.change ?? 0) - Math.abs(left.change ?? 0));
    part.classes.replaceChildren(...found.map(({ name, left, right, change }) => line(
      make("th", name), make("td", (right ?? left).images, "number"), make("td", percent(left?.recall), "number"), make("td", percent(right?.recall), "number"),
      make("td", change === null ? "-" : `${change > 0 ? "+" : ""}${(100 * change).toFixed(1)}`, `number ${change > 0 ? "good" : change < 0 ? "error" : ""}`))));
    if (!found.length) part.classes.append(line(make("td", "not recorded")));
  };

  const show = () => {
    for (const row of rows) {
      row.box.checked = ticked.includes(row);
      row.element.classList.toggle("chosen", row.box.checked);
    }
    part.chosen.hidden = !ticked.length;
    part.comparison.hidden = ticked.length < 2;
    if (ticked.length) drawCurves();
    if (ticked.length > 1) compare();
  };

  document.documentElement.classList.add("on");
  [...part.runs.tHead.rows[0].cells].slice(1).forEach((head, number) => {
    const button = make("button", head.textContent);
    button.type = "button";
    button.addEventListener("click", () => sort(head, number + 1));
    head.replaceChildren(button);
  });
  for (const row of rows) {
    row.box.addEventListener("change", () => {
      ticked = row.box.checked ? [...ticked, row] : ticked.filter(each => each !== row);
      show();
    });
  }
  part.filter.addEventListener("input", filter);
  part.clear.addEventListener("click", () => { ticked = []; show(); });
  for (const choice of document.querySelectorAll("input[name=curve]")) choice.addEventListener("change", drawCurves);
  ticked = rows.filter(row => row.run.curve.length).slice(0, 2).reverse(); // A is the older one
  filter();
  show();
})();

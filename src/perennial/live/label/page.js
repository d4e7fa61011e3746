"use strict";
(() => {
  const SMALL = 128; // pixels; smaller images are enlarged
  const KEYS = "1234567890";
  const MANY = KEYS.length; // more classes are found by typing
  const part = Object.fromEntries(
    ["count", "progress", "image", "done", "choices", "finder", "filter", "classes", "give", "none", "skip", "undo", "status"]
      .map(id => [id, document.getElementById(id)]));
  let classes = [], left = [], skipped = [], total = 0, next = "", busy = false, several = false;
  const given = []; // answers of this page: sha256, time and labels
  const chosen = new Set(); // of several labels, those of the image that is shown

  const say = (text, bad = false) => {
    part.status.textContent = text;
    part.status.classList.toggle("bad", bad);
  };

  const send = async (path, body) => {
    let response;
    try {
      response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    } catch {
      throw new Error("the server does not answer; start `perennial label` again, and reload this page");
    }
    const found = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
    if (!response.ok) throw Object.assign(new Error(found.error), { status: response.status });
    return found;
  };

  const matching = () => {
    const wanted = part.filter.value.trim().toLowerCase();
    const found = classes.filter(name => name.toLowerCase().includes(wanted));
    const starts = name => !name.toLowerCase().startsWith(wanted);
    return found.sort((one, other) => starts(one) - starts(other));
  };
  const offered = () => classes.length > MANY ? matching() : classes;

  const showClasses = () => {
    part.finder.hidden = classes.length <= MANY;
    part.classes.replaceChildren(...offered().map((name, place) => {
      const [button, key, text] = ["button", "kbd", "span"].map(tag => document.createElement(tag));
      text.textContent = name;
      key.textContent = KEYS[place] ?? "";
      button.append(...place < MANY ? [key, text] : [text]);
      button.addEventListener("click", () => take(name));
      return button;
    }));
    showChosen();
  };

  const showChosen = () => {
    part.give.hidden = !several || !left.length;
    if (!several) return;
    for (const button of part.classes.children) {
      button.setAttribute("aria-pressed", chosen.has(button.querySelector("span").textContent));
    }
    part.give.querySelector("span").textContent = chosen.size ? `Done: ${[...chosen].join(", ")}` : "Done: no label";
  };

  const take = name => {
    if (!several) return answer(name);
    if (busy || !left.length) return;
    if (!chosen.delete(name)) chosen.add(name);
    if (part.filter.value) { // the next label is another one
      part.filter.value = "";
      showClasses();
    } else showChosen();
  };

  const show = () => {
    const current = left[0];
    const number = total - left.length - skipped.length;
    part.count.textContent = `${number} of ${total} labelled`;
    part.progress.max = Math.max(total, 1);
    part.progress.value = number;
    part.undo.disabled = !given.length;
    part.none.disabled = part.skip.disabled = !current;
    part.choices.hidden = !current && !given.length;
    part.classes.hidden = !current;
    part.image.hidden = !current;
    part.done.hidden = Boolean(current);
    if (!current) {
      part.done.textContent = skipped.length
        ? `Only the ${skipped.length} skipped images are left. Reload this page to see them again.`
        : `All images have a label. ${next}`;
      return;
    }
    part.image.alt = `Image to label, ${left.length} left`;
    part.image.classList.remove("small");
    part.image.src = `images/${current}`;
    for (const after of left.slice(1, 3)) new Image().src = `images/${after}`;
    part.filter.value = "";
    showClasses();
    if (classes.length > MANY && document.activeElement === document.body) part.filter.focus();
  };

  const alone = async work => {
    if (busy) return;
    document.body.dataset.busy = busy = true;
    try {
      await work();
    } catch (error) {
      say(error.message, true);
      if (error.status === 409) await load();
    } finally {
      document.body.dataset.busy = busy = false;
    }
  };

  const answer = name => alone(async () => {
    const sha256 = left[0];
    if (!sha256) return;
    const labels = several && name === undefined ? [...chosen] : [];
    const { time } = await send("answers", { sha256, class: several ? labels : name });
    given.push({ sha256, time, labels });
    left.shift();
    chosen.clear();
    say(`Labelled as ${labels.join(", ") || (name ?? "none of these")}`);
    show();
  });

  const undo = () => alone(async () => {
    const last = given.pop();
    if (!last) return;
    await send("undo", last);
    left.unshift(last.sha256);
    chosen.clear();
    last.labels.forEach(name => chosen.add(name));
    say("Undone");
    show();
  });

  const skip = () => {
    if (busy || !left.length) return;
    skipped.push(left.shift());
    chosen.clear();
    say("Skipped");
    show();
  };

  const load = async () => {
    const state = await (await fetch("queue")).json();
    ({ classes, several, total, next } = state);
    left = state.left.filter(each => !skipped.includes(each));
    skipped = skipped.filter(each => state.left.includes(each));
    show();
  };

  part.image.addEventListener("load", () => {
    const { naturalWidth, naturalHeight } = part.image;
    part.image.classList.toggle("small", Math.max(naturalWidth, naturalHeight) < SMALL);
  });
  part.image.addEventListener("error", () => say("This image cannot be shown; skip it", true));
  part.give.addEventListener("click", () => answer());
  part.none.addEventListener("click", () => answer(null));
  part.skip.addEventListener("click", skip);
  part.undo.addEventListener("click", undo);
  part.filter.addEventListener("input", showClasses);
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const { key } = event, typing = event.target === part.filter;
    const place = KEYS.indexOf(key), names = offered();
    const actions = { u: undo, s: skip, n: () => answer(null), Backspace: undo };
    if (several && !event.target.matches("button:focus-visible")) actions.Enter = () => answer();
    let action = place >= 0 && place < names.length && left.length ? () => take(names[place]) : actions[key];
    if (typing && place < 0) {
      if (key === "Enter" && !(several && !part.filter.value)) action = names.length ? () => take(names[0]) : undefined;
      else if (key === "Escape") action = () => part.filter.blur();
      else if (!["Backspace", "Enter"].includes(key) || part.filter.value) return;
    }
    if (!action) return;
    event.preventDefault();
    action();
  });
  load().catch(() => say("the server does not answer", true));
})();

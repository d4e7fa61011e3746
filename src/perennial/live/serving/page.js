"use strict";
(() => {
  const MOST = 5; // classes shown of an image
  const KEPT = 20; // results on the page
  const SMALL = 64; // pixels; smaller images are enlarged
  const model = document.body.dataset.model;
  const mostBytes = Number(document.body.dataset.mostBytes);
  const [drop, file, status, results] = ["drop", "file", "status", "results"].map(id => document.getElementById(id));
  const address = new URL(`v1/models/${encodeURIComponent(model)}:classify`, location.href);
  document.getElementById("address").textContent = address.href.replace(/:classify$/, ":predict");

  const element = (name, values = {}, ...children) => {
    const made = Object.assign(document.createElement(name), values);
    made.append(...children);
    return made;
  };
  const percent = share => share > 0.9995 && share < 1 ? "> 99.9 %"
    : share < 0.0005 && share > 0 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;

  const base64 = blob => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(blob);
  });

  const classify = async photo => {
    if (photo.size * 4 / 3 > mostBytes - 1000) {
      const megabytes = bytes => (bytes / 2 ** 20).toFixed(0);
      throw new Error(`the file has ${megabytes(photo.size)} MB, at most ${megabytes(mostBytes * 3 / 4)} are taken`);
    }
    const body = JSON.stringify({ examples: [{ image: { b64: await base64(photo) } }] });
    let answer;
    try {
      answer = await fetch(address, { method: "POST", body });
    } catch {
      throw new Error("the server does not answer");
    }
    const found = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    if (!answer.ok) throw new Error(found.error.replace(/^examples\[0\]: /, ""));
    return found;
  };

  const preview = photo => {
    const url = URL.createObjectURL(photo);
    const image = element("img", { alt: "", src: url });
    image.onload = () => image.classList.toggle("small", Math.max(image.naturalWidth, image.naturalHeight) < SMALL);
    image.onerror = () => {
      URL.revokeObjectURL(url);
      image.replaceWith(element("p", { className: "none", textContent: "no preview" }));
    };
    return image;
  };

  const bars = (classes, given, marked) => element("ol", {}, ...classes.filter(
    ([label], place) => place < MOST || given.includes(label)).map(([label, share]) => {
    const filled = element("i");
    filled.style.width = `${100 * share}%`;
    const bar = element("span", { className: "bar" }, filled);
    bar.setAttribute("aria-hidden", "true");
    const mark = marked && given.includes(label) ? [element("b", { textContent: "✓ ", title: "a label of this photo" })] : [];
    return element("li", { className: given.includes(label) ? "given" : "" },
      element("span", {}, ...mark, element("bdi", { textContent: label })), element("span", { textContent: percent(share) }), bar);
  }));

  const show = async photo => {
    status.textContent = `Classifying ${photo.name}…`;
    const text = element("div");
    const article = element("article", {}, element("div", {}, preview(photo)), text);
    try {
      const { results: [classes], model_version: version, answers } = await classify(photo);
      const several = Array.isArray(answers?.[0]); // labels of one photo
      const given = several ? answers[0] : [classes[0][0]];
      const answer = several ? given.join(", ") || "No label" : answers?.[0] ?? classes[0][0];
      const shown = document.getElementById("version");
      if (shown && shown.textContent !== version) { // a new version came while the page was open
        shown.textContent = version;
        ["accuracy", "network", "classes", "abstention", "several"].forEach(id => document.getElementById(id)?.remove());
      }
      text.append(
        element("h2", { textContent: answer }),
        element("p", { className: "file", textContent: `${photo.name} · version ${version}` }), bars(classes, given, several));
      status.textContent = several ? `${photo.name}: ${answer}` : answer === classes[0][0] ? `${photo.name}: ${answer}, ${percent(classes[0][1])}`
        : `${photo.name}: ${answer}, perhaps ${classes[0][0]}, ${percent(classes[0][1])}`;
    } catch (error) {
      article.className = "failed";
      text.append(
        element("h2", { textContent: `Not classified: ${error.message}` }),
        element("p", { className: "file", textContent: photo.name }));
      status.textContent = `${photo.name} was not classified: ${error.message}`;
    }
    results.prepend(article);
    while (results.children.length > KEPT) {
      URL.revokeObjectURL(results.lastElementChild.querySelector("img")?.src);
      results.lastElementChild.remove();
    }
  };

  let last = Promise.resolve(); // one after the other
  const take = photos => { for (const photo of photos) last = last.then(() => show(photo)); };

  file.addEventListener("change", () => { take([...file.files]); file.value = ""; });
  document.addEventListener("paste", event => take([...event.clipboardData.files]));
  document.addEventListener("dragover", event => { event.preventDefault(); drop.classList.add("over"); });
  document.addEventListener("dragleave", event => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", event => {
    event.preventDefault();
    drop.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
})();

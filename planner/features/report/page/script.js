"use strict";
// What a page does: folds and unfolds blocks, finds tensors by name, draws a tensor's tiles worker by worker.
// The data are what planner/report/page/tensors.py packs. Names come from a model: they are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const made = (name, text, attributes = {}) => {
    const found = document.createElement(name);
    if (text !== undefined) found.textContent = text;
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    return found;
  };
  const drawn = (name, attributes, text) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    if (text !== undefined) found.textContent = text;
    return found;
  };
  const bytes = (count) => {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let number = 0;
    while (count >= 999.95 && number + 1 < units.length) { count /= 1000; number += 1; }
    return number ? `${count.toFixed(1)} ${units[number]}` : `${count} B`;
  };

  // Tensors: a name is its form's texts with its numbers between them.
  const names = [];
  const records = [];
  for (const [texts, count, numbers, counted] of data.forms) {
    const values = data.numbers[numbers];
    const each = texts.length - 1;
    for (let member = 0; member < count; member += 1) {
      let name = texts[0];
      for (let part = 0; part < each; part += 1) name += values[member * each + part] + texts[part + 1];
      names.push(name);
    }
    for (let part = 0; part < counted.length; part += 2) {
      for (let again = 0; again < counted[part + 1]; again += 1) records.push(counted[part]);
    }
  }

  // The region of a tensor that each worker has, as [lo, hi] by dim.
  const regions = (record) => {
    const shape = data.shapes[record[0]].length ? data.shapes[record[0]] : [1];
    const divided = data.tiles[record[5]];
    return Array.from({ length: data.workers }, (_, worker) => {
      const region = shape.map((size) => [0, size]);
      for (const [dim, bounds, pieces] of divided) {
        region[dim] = [bounds[2 * pieces[worker]], bounds[2 * pieces[worker] + 1]];
      }
      return region;
    });
  };
  const isEmpty = (region) => region.some(([lo, hi]) => lo >= hi);
  const text = (region) => (isEmpty(region) ? "nothing" : region.map(([lo, hi]) => `${lo}:${hi}`).join(", "));

  // Tiles in two dims; pieces along the others stand beside each other, owners of the same below each other.
  const picture = (record, whole) => {
    const shape = data.shapes[record[0]].length ? data.shapes[record[0]] : [1];
    const cut = data.tiles[record[5]].map(([dim]) => dim);
    const down = 0;
    const across = shape.length > 1 ? (cut.find((dim) => dim > 0) ?? 1) : -1;
    const side = 240;
    const svg = drawn("svg", { width: side + 60, height: side + 40, viewBox: `-50 -4 ${side + 60} ${side + 40}`, role: "img" });
    svg.append(drawn("title", {}, "Tiles by worker"));
    const groups = new Map();
    whole.forEach((region, worker) => {
      if (isEmpty(region)) return;
      const place = (dim) => (dim < 0 ? [0, side] : region[dim].map((bound) => (bound / shape[dim]) * side));
      const key = JSON.stringify([place(across), place(down)]);
      const hidden = JSON.stringify(region.filter((_, dim) => dim !== down && dim !== across));
      if (!groups.has(key)) groups.set(key, new Map());
      const places = groups.get(key);
      if (!places.has(hidden)) places.set(hidden, []);
      places.get(hidden).push(worker);
    });
    for (const [key, places] of groups) {
      const [[left, right], [top, bottom]] = JSON.parse(key);
      const stripe = (right - left) / places.size;
      let number = 0;
      for (const owners of places.values()) {
        // Replicas are offset sheets with a pale face, as in the strip.
        const sheets = Math.min(owners.length, 4);
        const offset = Math.min(6, stripe / (3 * sheets), (bottom - top) / (3 * sheets));
        const room = offset * (sheets - 1);
        const box = { x: left + number * stripe, y: top + room, width: stripe - room, height: bottom - top - room };
        for (let behind = sheets - 1; behind >= 0; behind -= 1) {
          const fill = data.palette[owners[behind] % data.palette.length];
          svg.append(drawn("rect", { ...box, x: box.x + behind * offset, y: box.y - behind * offset, fill, stroke: "#000" }));
        }
        const inset = sheets > 1 ? Math.min(4, offset) : 0;
        if (inset) {
          svg.append(drawn("rect", { x: box.x + inset, y: box.y + inset, width: box.width - 2 * inset, height: box.height - 2 * inset, fill: "#FFF" }));
        }
        if (Math.min(box.width, box.height) >= 11) {
          const several = data.tilings[record[3]].includes("P") ? "Σ" : "×";
          const words = sheets > 1 ? `${several}${owners.length}` : owners[0];
          svg.append(drawn("text", { x: box.x + box.width / 2, y: box.y + box.height / 2 + 4, "text-anchor": "middle", "font-size": 12, fill: "#000" }, words));
        }
        number += 1;
      }
    }
    svg.append(drawn("text", { x: -6, y: side / 2, "text-anchor": "end", "font-size": 11 }, `dim ${down}`));
    if (across >= 0) svg.append(drawn("text", { x: side / 2, y: side + 16, "text-anchor": "middle", "font-size": 11 }, `dim ${across}`));
    return svg;
  };

  // A button beside each command of a part of the page, which copies it.
  const copied = (part) => {
    for (const code of part.querySelectorAll("code.command")) {
      const button = made("button", "Copy", { type: "button", class: "copy", "aria-label": `Copy: ${code.textContent}` });
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(code.textContent);
          button.textContent = "Copied";
        } catch {
          // A browser may keep the clipboard from a file: then the command is selected, to be copied by hand.
          getSelection().selectAllChildren(code);
          button.textContent = "Selected";
        }
      });
      code.after(button);
    }
  };

  const quoted = (name) => `'${name.replaceAll("'", "'\\''")}'`;

  const choose = (number, from) => {
    const record = data.records[records[number]];
    const [shape, dtype, role, tiling, moved, , itemBytes] = record;
    const panel = at("tensor");
    const facts = made("dl");
    const told = data.told[number];
    const rows = [
      ["Shape", `[${data.shapes[shape].join(", ")}] of ${dtype}`],
      ["Role", role],
      ["Tiling", data.tilings[tiling]],
      ["Moves", `${bytes(moved)} (${moved.toLocaleString("en")} bytes) a step, over all workers`],
    ];
    if (told) {
      rows.push(["Made by", told[0] || "nothing: it is an input"]);
      rows.push(["Read by", told[1].join(", ") || "nobody"]);
    }
    for (const [name, value] of rows) facts.append(made("dt", name), made("dd", value));
    const back = made("button", "Close", { type: "button" });
    back.addEventListener("click", () => {
      panel.replaceChildren(made("p", "No tensor is chosen."));
      mark(-1);
      history.replaceState(null, "", "#network");
      if (from) from.focus();
    });
    panel.replaceChildren(made("h3", names[number]), facts);
    if (data.tiles.length) {
      const whole = regions(record);
      const table = made("table");
      const head = made("tr");
      for (const title of ["worker", "has", "takes"]) head.append(made("th", title));
      table.append(head);
      whole.forEach((region, worker) => {
        const row = made("tr");
        const size = region.reduce((product, [lo, hi]) => product * Math.max(0, hi - lo), itemBytes);
        row.append(made("td", worker), made("td", text(region)), made("td", bytes(size)));
        table.append(row);
      });
      const both = made("div", undefined, { class: "tiles" });
      both.append(picture(record, whole), table);
      panel.append(both);
    }
    const command = made("p", "More: ");
    command.append(made("code", `tofu explain ${quoted(data.folder)} ${quoted(names[number])}`, { class: "command" }));
    copied(command);
    panel.append(command, back);
    mark(number);
    history.replaceState(null, "", `#tensor=${encodeURIComponent(names[number])}`);
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  };
  const mark = (number) => {
    for (const one of document.querySelectorAll(".tensor")) one.classList.toggle("chosen", Number(one.dataset.tensor) === number);
  };

  // Folding: the repetitions of a block are copies of the first one, with tensors of their own.
  const unfold = (button, wanted) => {
    const block = button.closest(".block");
    const isOpen = button.getAttribute("aria-expanded") === "true";
    if (isOpen === wanted) return;
    button.setAttribute("aria-expanded", String(wanted));
    if (!wanted) {
      for (const one of [...block.parentNode.querySelectorAll(`[data-of="${button.dataset.block}"]`)]) one.remove();
      return;
    }
    const first = block.querySelector("svg");
    let last = block;
    data.blocks[Number(button.dataset.block)].slice(1).forEach(([name, tensors]) => {
      const copy = made("figure", undefined, { class: "block", "data-of": button.dataset.block });
      const head = made("div", undefined, { class: "fold", title: name });
      head.append(made("span", name, { class: "name" }));
      const columns = first.cloneNode(true);
      columns.querySelectorAll(".tensor").forEach((one, number) => {
        const tensor = tensors[number];
        const record = data.records[records[tensor]];
        const said = `${names[tensor]}, ${data.shapes[record[0]].join("×")}, ${data.tilings[record[3]]}`;
        one.dataset.tensor = tensor;
        one.setAttribute("aria-label", `${said}: show its tiles`);
        one.classList.remove("chosen");
        const title = one.querySelector("title");
        if (title) title.textContent = said;
      });
      for (const title of columns.querySelectorAll("g > title")) {
        if (!title.closest(".tensor")) title.remove(); // the first block's ops
      }
      copy.append(head, columns);
      last.after(copy);
      last = copy;
    });
  };
  const folds = [...document.querySelectorAll("button.fold")];
  for (const button of folds) {
    button.addEventListener("click", () => unfold(button, button.getAttribute("aria-expanded") !== "true"));
  }
  const all = at("unfold");
  if (all) {
    all.hidden = !folds.length;
    all.addEventListener("click", () => {
      const wanted = all.getAttribute("aria-pressed") !== "true";
      for (const button of folds) unfold(button, wanted);
      all.setAttribute("aria-pressed", String(wanted));
      all.textContent = wanted ? "Fold all" : "Unfold all";
    });
  }

  const strip = document.querySelector(".strip");
  if (strip) {
    const pressed = (event) => {
      const tensor = event.target.closest(".tensor");
      if (tensor) choose(Number(tensor.dataset.tensor), tensor);
      return tensor;
    };
    strip.addEventListener("click", pressed);
    strip.addEventListener("keydown", (event) => {
      if ((event.key === "Enter" || event.key === " ") && pressed(event)) event.preventDefault();
    });
  }

  // Search: all words must be in the name; the first fifty are shown.
  const most = 50;
  const lower = names.map((name) => name.toLowerCase());
  const field = at("search");
  const found = (wanted) => {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    return lower.map((_, number) => number).filter((number) => words.every((word) => lower[number].includes(word)));
  };
  field.addEventListener("input", () => {
    const hits = found(field.value);
    at("count").textContent = field.value.trim() ? ` ${hits.length} of ${names.length}${hits.length > most ? `, ${most} shown` : ""}` : "";
    at("found").replaceChildren(...hits.slice(0, most).map((number) => {
      const item = made("li");
      const button = made("button", names[number], { type: "button" });
      button.addEventListener("click", () => choose(number, button));
      item.append(button);
      return item;
    }));
  });
  field.addEventListener("keydown", (event) => {
    const hits = event.key === "Enter" ? found(field.value) : [];
    if (hits.length) choose(hits[0], field);
  });

  copied(document.querySelector("footer"));

  // Charts grow and shrink: each has two buttons, and is moved in its own frame.
  for (const frame of document.querySelectorAll(".zoom")) {
    const svg = frame.querySelector("svg");
    const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
    let scale = 1;
    const buttons = made("p");
    for (const [sign, words, factor] of [["+", "Larger", 2], ["−", "Smaller", 0.5]]) {
      const button = made("button", sign, { type: "button", class: "copy", "aria-label": `${words}: ${svg.getAttribute("aria-label")}` });
      button.addEventListener("click", () => {
        scale = Math.min(16, Math.max(1, scale * factor));
        svg.setAttribute("width", width * scale);
        svg.setAttribute("height", height * scale);
        frame.classList.toggle("larger", scale > 1);
      });
      buttons.append(button);
    }
    frame.before(buttons);
  }

  // A link to a tensor: page.html#tensor=NAME.
  const linked = () => {
    if (!location.hash.startsWith("#tensor=")) return;
    const number = names.indexOf(decodeURIComponent(location.hash.slice("#tensor=".length)));
    if (number >= 0) choose(number, field);
  };
  addEventListener("hashchange", linked);
  linked();
})();

// What a browser adds to pages: tables are sorted and filtered, series of figures are switched, values are shown on hover, and figures are
// saved. The state of all controls is part of the address. Without JavaScript pages are read as they stand.
(() => {
  "use strict";

  const FEW = 3; // rows, up to which a table needs no tools
  const BELOW = ".small, .paper"; // lines of a cell below the one that it is about
  const NEAR = 16; // pixels between the pointer and the point that it names
  // A number in front, perhaps after a mark or the symbol of a scale: "≈ 0.5", "σ = 10", "2,000", "−1.2e−5".
  const NUMBER = /^(?:\S+ = )?[^\p{L}\p{N}∞−+.-]*([−+-]?)(∞|\d[\d,]*\.?\d*(?:e[−+-]?\d+)?)/u;

  const made = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };

  // Controls: each has a name in the address, under which its value is stored unless it is empty.
  const state = new URLSearchParams(location.search);
  const store = (name, value) => {
    const address = new URL(location);
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
    history.replaceState(null, "", address);
  };

  // Tables: sorted by the buttons in their heads, and filtered by words.
  const rowsOf = (table) => [...table.tBodies].flatMap((body) => [...body.rows]);
  const isTitle = (row) => row.cells.length === 1;
  const firstLine = (cell) => {
    const copy = cell.cloneNode(true);
    if (!cell.matches(BELOW)) copy.querySelectorAll(BELOW).forEach((line) => line.remove());
    return copy.textContent.trim();
  };
  // What a cell is sorted by: a number, a text, or null for nothing, which comes last.
  const sortKey = (cell, isText) => {
    const text = cell.dataset.value ?? firstLine(cell);
    const number = !isText && NUMBER.exec(text);
    if (number) return Number((/[−-]/u.test(number[1]) ? "-" : "") + number[2].replace("∞", "Infinity").replaceAll("−", "-").replaceAll(",", ""));
    return text === "–" ? null : text || null;
  };
  const order = new Intl.Collator(undefined, { numeric: true });
  const compared = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : order.compare(a, b));

  function sort(table, column, direction) {
    const heads = [...table.tHead.rows[0].cells];
    const isText = heads[column].classList.contains("text");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !isTitle(row)).map((row) => [sortKey(row.cells[column], isText), row]);
      const byKey = (a, b) => (a === null || b === null ? (a === null) - (b === null) : direction * compared(a, b));
      rows.sort(([a, row], [b, other]) => byKey(a, b) || row.position - other.position);
      body.append(...rows.map(([, row]) => row));
    }
    heads.forEach((head, k) => { if (k === column) head.ariaSort = direction > 0 ? "ascending" : "descending"; else head.removeAttribute("aria-sort"); });
  }

  function sortable(table, name) {
    const heads = [...table.tHead.rows[0].cells];
    rowsOf(table).forEach((row, position) => { row.position = position; }); // the order of equal rows
    heads.forEach((head, column) => {
      const button = made("button", { type: "button", className: "sort" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const direction = head.ariaSort === "ascending" ? -1 : 1;
        sort(table, column, direction);
        store(name, `${column}${direction > 0 ? "" : "-"}`);
      });
      head.append(button);
    });
    const column = parseInt(state.get(name), 10);
    if (heads[column]) sort(table, column, state.get(name).endsWith("-") ? -1 : 1);
  }

  // A search box that shows the rows of tables with all of its words, in the row or in the heading of its group.
  function filter(search, status, name, tables) {
    const empty = tables.map((table) => made("p", { className: "key", hidden: true }));
    tables.forEach((table, k) => table.closest(".scroll").before(empty[k]));
    const rowsShown = (table, words) => {
      let shown = 0;
      for (const body of table.tBodies) {
        const isExtra = (row) => isTitle(row) || row.classList.contains("exact");
        const extra = [...body.rows].filter(isExtra);
        const rows = [...body.rows].filter((row) => !isExtra(row));
        const heading = extra.filter(isTitle).map((row) => row.textContent).join(" ");
        for (const row of rows) {
          const text = `${heading} ${row.textContent}`.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
        const found = rows.filter((row) => !row.hidden).length;
        for (const row of extra) row.hidden = found === 0;
        shown += found;
      }
      return shown;
    };
    const apply = () => {
      const words = search.value.toLowerCase().split(/\s+/u);
      const counts = tables.map((table) => rowsShown(table, words));
      const shown = counts.reduce((sum, count) => sum + count, 0);
      const others = tables.filter((_, k) => counts[k]).map((table) => table.closest(".scroll").getAttribute("aria-label"));
      empty.forEach((line, k) => {
        line.hidden = counts[k] > 0;
        line.textContent = others.length ? `Not measured in this table, but in: ${others.join("; ")}.` : "No row matches.";
      });
      status.textContent = search.value ? `${shown} rows` : "";
    };
    search.value = state.get(name) ?? "";
    if (search.value) apply();
    search.addEventListener("input", () => { apply(); store(name, search.value); });
  }

  // A table that fits needs no scrolling of its own: its head stays in the window instead.
  const settle = (scroll) => {
    const fits = () => scroll.firstElementChild.offsetWidth <= scroll.offsetWidth;
    scroll.classList.remove("tight"); // "fits" stays: without it, the page would be shorter for a moment, and scrolled
    if (!fits()) scroll.classList.add("tight");
    scroll.classList.toggle("fits", fits());
    scroll.classList.toggle("wide", !fits());
    // a short table would be cut within its last rows
    scroll.classList.toggle("whole", !fits() && scroll.firstElementChild.offsetHeight < 1.5 * innerHeight);
    if (!fits()) scroll.classList.remove("tight"); // for nothing
    if (fits()) scroll.removeAttribute("tabindex");
    else scroll.tabIndex = 0;
  };
  // Tables have changed their heights after the browser scrolled to the anchor of the address. After a reload or on the way back, the
  // browser restores the position instead.
  let isOpened = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  const sizes = new ResizeObserver((entries) => requestAnimationFrame(() => {
    entries.forEach(({ target }) => settle(target));
    if (!isOpened) document.querySelector(":target")?.scrollIntoView({ behavior: "instant" });
    isOpened = true;
  }));

  // Search boxes in the page, for all tables of a class.
  const searches = [...document.querySelectorAll("input[type=search][data-tables]")];
  const isFilteredByPage = (table) => searches.some((search) => table.classList.contains(search.dataset.tables));

  document.querySelectorAll(".scroll").forEach((scroll, number) => {
    const table = scroll.querySelector("table");
    const simple = table.tHead?.rows.length === 1 && !table.querySelector("[rowspan]") && !table.classList.contains("plain");
    const count = rowsOf(table).length;
    if (simple && count > FEW) sortable(table, `sort${number}`);
    if (simple && count > 3 * FEW && !isFilteredByPage(table)) {
      const search = made("input", { type: "search", placeholder: "filter rows", ariaLabel: `Filter rows: ${scroll.getAttribute("aria-label")}` });
      const status = made("span", { className: "state", role: "status" });
      scroll.before(made("div", { className: "tools" }, search, status));
      filter(search, status, `rows${number}`, [table]);
    }
    sizes.observe(scroll);
  });

  // Tools in the page: filters of all tables by rule or net, a switch of the paper's numbers, and a choice of statements.
  for (const tools of document.querySelectorAll(".tools[hidden], .filter[hidden]")) tools.hidden = false;
  for (const search of searches) {
    filter(search, search.nextElementSibling, search.name, [...document.querySelectorAll(`table.${search.dataset.tables}`)]);
  }
  const isPrinted = document.querySelector("main .paper");
  const boxes = document.querySelectorAll("input[name=paper]");
  for (const box of boxes) {
    const apply = () => {
      document.body.classList.toggle("unprinted", !box.checked);
      for (const other of boxes) other.checked = box.checked;
    };
    box.closest("label").hidden = !isPrinted;
    box.checked = state.has(box.name);
    apply();
    box.addEventListener("change", () => { apply(); store(box.name, box.checked && "on"); });
  }
  for (const radio of document.querySelectorAll("input[type=radio][name]")) {
    const apply = () => {
      for (const one of document.querySelectorAll(`[data-${radio.name}]`)) one.hidden = radio.value !== "" && one.dataset[radio.name] !== radio.value;
      for (const group of document.querySelectorAll(`section:has(> [data-${radio.name}])`)) group.hidden = !group.querySelector(`[data-${radio.name}]:not([hidden])`);
    };
    radio.checked = radio.value === (state.get(radio.name) ?? "");
    if (radio.checked && radio.value) apply();
    radio.addEventListener("change", () => { apply(); store(radio.name, radio.value); });
  }

  // Statements are folded. The address contains those that are open, and a link to one opens it.
  const folds = [...document.querySelectorAll("article[id] > details.fold")];
  const unfolded = new Set(state.get("open")?.split("|"));
  const openTarget = () => {
    const fold = folds.find(({ parentElement }) => `#${parentElement.id}` === decodeURI(location.hash));
    if (fold) fold.open = true;
  };
  for (const fold of folds) {
    fold.open = unfolded.has("all") || unfolded.has(fold.parentElement.id);
    fold.addEventListener("toggle", () => {
      const open = folds.filter((other) => other.open);
      store("open", open.length === folds.length ? "all" : open.map(({ parentElement }) => parentElement.id).join("|"));
    });
  }
  openTarget();
  addEventListener("hashchange", openTarget);
  for (const button of document.querySelectorAll("button.unfold")) {
    button.addEventListener("click", () => {
      const open = !folds.every((fold) => fold.open);
      for (const fold of folds) fold.open = open;
    });
  }

  // Figures: series are switched on and off in all figures together; those that are off stay faint.
  const switched = { on: new Set(state.get("on")?.split("|")), off: new Set(state.get("off")?.split("|")) };
  const apply = (label) => {
    for (const part of document.querySelectorAll(`[data-series="${CSS.escape(label)}"]`)) {
      part.classList.toggle("faint", switched.off.has(label) || (part.faintAtFirst && !switched.on.has(label)));
    }
    for (const button of document.querySelectorAll(`button[data-label="${CSS.escape(label)}"]`)) button.ariaPressed = !button.shown.classList.contains("faint");
  };
  function switchable(figure) {
    const legend = figure.querySelector("[data-legend]");
    const parts = new Map();
    for (const part of figure.querySelectorAll("[data-series]")) {
      part.faintAtFirst = part.classList.contains("faint");
      if (!legend?.contains(part) && !parts.has(part.dataset.series)) parts.set(part.dataset.series, part);
    }
    const labels = [...(legend?.querySelectorAll("text") ?? [])].map((text) => text.textContent);
    if (labels.length < 2 || !labels.every((label) => parts.has(label))) return;
    const svg = figure.querySelector("svg");
    svg.legend = legend; // of the saved file; on the page buttons take its place
    legend.remove();
    svg.viewBox.baseVal.height -= Number(legend.dataset.legend);
    const buttons = labels.map((label) => {
      const part = parts.get(label);
      const shape = part.querySelector("[style]");
      const dot = made("i", { className: "dot" });
      dot.style.background = shape.style.stroke && shape.style.stroke !== "none" ? shape.style.stroke : shape.style.fill;
      const button = made("button", { type: "button", shown: part }, dot, label);
      button.dataset.label = label;
      button.addEventListener("click", () => {
        const [to, from] = button.ariaPressed === "true" ? ["off", "on"] : ["on", "off"];
        switched[to].add(label);
        switched[from].delete(label);
        apply(label);
        for (const name of ["on", "off"]) store(name, [...switched[name]].join("|"));
      });
      return button;
    });
    svg.parentElement.before(made("div", { className: "tools series", role: "group", ariaLabel: `Series: ${svg.ariaLabel.split(".")[0]}` }, ...buttons));
    if (figure.querySelector(".faint")) figure.querySelector(".series").append(made("span", { className: "state", textContent: "dashed: faint, click to show" }));
  }
  for (const figure of document.querySelectorAll("figure.charts")) switchable(figure);
  for (const label of new Set([...document.querySelectorAll("button[data-label]")].map((button) => button.dataset.label))) apply(label);

  // On a narrow page, the panels of a figure are below each other, with the texts at the left of their rows.
  const narrow = matchMedia("(max-width: 40rem)");
  function stackable(svg) {
    const panels = [...svg.querySelectorAll("[data-panel]")].map((group) => {
      const [left, top, width, height] = group.dataset.panel.split(" ").map(Number);
      return { group, left, top, width, height };
    });
    if (panels.length < 2) return;
    const whole = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
    svg.whole = whole;
    const widest = Math.max(...panels.map(({ width }) => width));
    const legend = svg.querySelector("[data-legend]");
    const moved = (group, x, y, scale = 1) => group.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    const apply = () => {
      svg.querySelectorAll(".copy").forEach((copy) => copy.remove());
      let y = 0;
      for (const { group, left, top, width, height } of panels) {
        if (narrow.matches) {
          const shift = widest - width;
          moved(group, shift - left, y - top);
          const first = panels.find((other) => other.top === top);
          for (const text of first.group === group ? [] : first.group.querySelectorAll("[data-side]:not(.copy)")) {
            const copy = text.cloneNode(true);
            copy.classList.add("copy");
            moved(copy, left - shift, 0);
            group.append(copy);
          }
          y += height;
        } else group.removeAttribute("transform");
      }
      const size = narrow.matches ? { width: widest, height: y } : whole;
      if (legend?.isConnected) {
        const scale = narrow.matches ? widest / whole.width : 1;
        moved(legend, 0, narrow.matches ? y + scale * (Number(legend.dataset.legend) - whole.height) : 0, scale);
        if (narrow.matches) size.height += scale * Number(legend.dataset.legend);
      }
      svg.viewBox.baseVal.width = size.width;
      svg.viewBox.baseVal.height = size.height;
      svg.classList.toggle("stacked", narrow.matches);
    };
    apply();
    narrow.addEventListener("change", apply);
  }
  for (const svg of document.querySelectorAll("main :not(.opening) > figure.charts svg.chart")) stackable(svg);

  // Details: titles of cells and points of figures, on hover, focus and touch.
  const tip = made("div", { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const show = (text, box) => {
    tip.textContent = text;
    tip.hidden = !text;
    if (!text) return;
    const left = Math.min(Math.max(4, box.left + box.width / 2 - tip.offsetWidth / 2), document.documentElement.clientWidth - tip.offsetWidth - 4);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.translate = `${left}px ${above > 4 ? above : box.bottom + 6}px`;
  };
  const pointNear = (svg, x, y) => {
    let nearest = null;
    for (const part of svg.querySelectorAll("[data-tips]:not(.faint)")) {
      const texts = part.dataset.tips.split("|");
      const marks = part.querySelectorAll("use");
      if (texts.length !== marks.length) continue; // a point is outside of its panel
      marks.forEach((mark, k) => {
        const box = mark.getBoundingClientRect();
        const distance = Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y);
        if (distance < (nearest?.distance ?? NEAR)) nearest = { distance, box, text: `${part.dataset.series}${texts[k]}` };
      });
    }
    return nearest;
  };
  const pointed = ({ type, target, clientX, clientY }) => {
    const svg = target.closest?.("svg.chart");
    if (svg) {
      const point = clientX === undefined ? null : pointNear(svg, clientX, clientY);
      show(point?.text ?? "", point?.box);
      return;
    }
    const holder = target.closest?.("[title], [data-title]");
    if (holder?.title) { // else the browser would show it as well
      holder.dataset.title = holder.title;
      holder.removeAttribute("title");
    }
    if (holder && type === "focusin") target.setAttribute("aria-describedby", tip.id);
    show(holder?.dataset.title ?? "", holder?.getBoundingClientRect());
  };
  for (const name of ["pointermove", "pointerdown", "focusin"]) document.addEventListener(name, pointed);
  document.addEventListener("scroll", () => show(""), { capture: true, passive: true });

  for (const heading of document.querySelectorAll("section[id] > h2, h3[id], h4[id], figure[id] h3")) {
    const anchor = heading.id || heading.closest("[id]").id;
    if (!heading.closest("summary")) heading.append(made("a", { className: "permalink", href: `#${anchor}`, ariaLabel: "Link to this heading" }));
  }

  // Below a drawing that leaves its page: its title, setting and version, as text and as the title of the file.
  const signed = (svg) => {
    const source = svg.querySelector("desc")?.textContent ?? "";
    const { width, height } = svg.viewBox.baseVal;
    const text = (name, more) => { const node = document.createElementNS(svg.namespaceURI, name); node.textContent = source; Object.entries(more).forEach(([key, value]) => node.setAttribute(key, value)); return node; };
    svg.setAttribute("viewBox", `0 0 ${width} ${height + 12}`);
    svg.prepend(text("title", {}));
    svg.append(text("text", { x: 4, y: height + 8, "font-size": Math.min(6.5, 1.9 * width / source.length), fill: "currentColor" }));
  };

  // The drawing by itself: colours of the light page, as other programs know no CSS variables.
  const alone = (svg) => {
    const copy = svg.cloneNode(true);
    if (svg.whole) { // as on a wide page
      copy.querySelectorAll(".copy").forEach((text) => text.remove());
      copy.querySelectorAll("[data-panel], [data-legend]").forEach((group) => group.removeAttribute("transform"));
      copy.setAttribute("viewBox", `0 0 ${svg.whole.width} ${svg.whole.height}`);
    }
    const names = { currentColor: "#1f2328", "var(--quiet)": "#626b75", "var(--line)": "#d8dbdf", "var(--page)": "#ffffff" };
    copy.setAttribute("font-family", "sans-serif");
    if (svg.legend) {
      copy.append(svg.legend.cloneNode(true));
      copy.viewBox.baseVal.height += Number(svg.legend.dataset.legend);
    }
    signed(copy);
    const faint = new Set([...svg.querySelectorAll(".faint")].map((part) => part.dataset.series));
    for (const part of copy.querySelectorAll("[data-series]")) if (faint.has(part.dataset.series)) part.setAttribute("opacity", "0.15");
    return new XMLSerializer().serializeToString(copy).replace(/currentColor|var\(--\w+\)/gu, (name) => names[name]).replace(/light-dark\((#\w+),#\w+\)/gu, "$1");
  };
  const saved = (figure, svg) => {
    const file = made("button", { type: "button", textContent: "SVG", ariaLabel: `Save ${figure.id} as SVG` });
    file.addEventListener("click", () => {
      made("a", { href: URL.createObjectURL(new Blob([alone(svg)], { type: "image/svg+xml" })), download: `${figure.id}.svg` }).click();
    });
    const print = made("button", { type: "button", textContent: "PDF", ariaLabel: `Print ${figure.id}, also as PDF` });
    print.addEventListener("click", () => {
      const frame = made("iframe", { hidden: true, title: figure.id, srcdoc: `<style>body{margin:0}svg{width:100%!important}</style>${alone(svg)}` });
      frame.addEventListener("load", () => { frame.contentWindow.addEventListener("afterprint", () => frame.remove()); frame.contentWindow.print(); });
      document.body.append(frame);
    });
    figure.querySelector("figcaption p").append(made("span", { className: "save" }, file, print));
  };
  for (const figure of document.querySelectorAll("figure.charts")) saved(figure, figure.querySelector("svg"));

  const leave = ({ target }) => document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = menu.contains(target); });
  for (const name of ["click", "focusin"]) document.addEventListener(name, leave);
  document.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    show("");
    document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.firstElementChild.focus(); });
  });
})();

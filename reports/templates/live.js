// What a browser adds to pages: tables are sorted (by sortable.min.js) and filtered, set tighter where that makes them fit, and figures
// are saved. Without JavaScript pages are read as they stand.
(() => {
  "use strict";

  const FEW = 3; // rows, up to which a table needs no tools
  const BELOW = ".small, .paper"; // lines of a cell below the one that it is about
  // A number in front, perhaps after a mark or the symbol of a scale: "≈ 0.5", "σ = 10", "2,000", "−1.2e−5".
  const NUMBER = /^(?:\S+ = )?[^\p{L}\p{N}∞−+.-]*([−+-]?)(∞|\d[\d,]*\.?\d*(?:e[−+-]?\d+)?)/u;

  const made = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };

  const firstLine = (cell) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(BELOW).forEach((line) => line.remove());
    return copy.textContent.trim();
  };

  // What a cell is sorted by: a number; a text, with leading zeros so that 10 follows 9; empty, which comes last.
  const sortKey = (cell, isText) => {
    const text = cell.dataset.value ?? firstLine(cell);
    const found = !isText && NUMBER.exec(text);
    if (found) return (/[−-]/u.test(found[1]) ? "-" : "") + found[2].replace("∞", "Infinity").replaceAll("−", "-").replaceAll(",", "");
    return text === "–" ? "" : text.toLowerCase().replace(/\d+/gu, (digits) => digits.padStart(9, "0"));
  };

  function sorted(table) {
    const heads = [...table.tHead.rows[0].cells];
    for (const body of [...table.tBodies]) { // a title of a group goes into a body of its own, which stays on top
      const title = body.rows[0];
      if (body.rows.length > 1 && title.cells[0].colSpan === heads.length) body.before(made("tbody", {}, title));
    }
    for (const head of heads) head.append(made("button", { type: "button", className: "sort" }, ...head.childNodes));
    for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
      [...row.cells].forEach((cell, k) => { cell.dataset.sort = sortKey(cell, heads[k]?.classList.contains("text")); });
    }
    table.classList.add("sortable", "n-last", "asc");
  }

  function filtered(table, scroll) {
    const search = made("input", { type: "search", placeholder: "filter rows", ariaLabel: `Filter rows: ${scroll.getAttribute("aria-label")}` });
    const state = made("span", { className: "state", role: "status" });
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/u);
      let shown = 0;
      for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
        const text = row.textContent.toLowerCase();
        const isTitle = row.cells.length === 1;
        row.hidden = !isTitle && !words.every((word) => text.includes(word));
        shown += !isTitle && !row.hidden;
      }
      state.textContent = search.value ? `${shown} rows` : "";
    });
    scroll.before(made("div", { className: "tools" }, search, state));
  }

  // A table that fits needs no scrolling of its own: its head stays in the window instead.
  const settle = (scroll) => {
    const fits = () => scroll.firstElementChild.offsetWidth <= scroll.offsetWidth;
    scroll.classList.remove("tight", "dense", "fits");
    for (const way of ["tight", "dense"]) if (!fits()) scroll.classList.add(way);
    scroll.classList.toggle("fits", fits());
    if (!fits()) scroll.classList.remove("tight", "dense"); // for nothing
    if (fits()) scroll.removeAttribute("tabindex");
    else scroll.tabIndex = 0;
  };
  const sizes = new ResizeObserver((entries) => requestAnimationFrame(() => entries.forEach(({ target }) => settle(target))));

  for (const scroll of document.querySelectorAll(".scroll")) {
    const table = scroll.querySelector("table");
    const rows = [...table.tBodies].reduce((sum, body) => sum + body.rows.length, 0);
    const simple = table.tHead?.rows.length === 1 && !table.querySelector("[rowspan]") && !table.classList.contains("plain");
    if (simple && rows > FEW) sorted(table);
    if (simple && rows > 3 * FEW) filtered(table, scroll);
    sizes.observe(scroll);
  }

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
    return svg;
  };

  // The drawing by itself: colours of the light page, as other programs know no CSS variables.
  const alone = (svg) => {
    const copy = signed(svg.cloneNode(true));
    const names = { currentColor: "#1f2328", "var(--quiet)": "#626b75", "var(--line)": "#d8dbdf", "var(--page)": "#ffffff" };
    copy.setAttribute("font-family", "sans-serif");
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
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.firstElementChild.focus(); }); });
})();

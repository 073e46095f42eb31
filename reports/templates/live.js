// What a browser adds to tables: they can be sorted, filtered, narrowed to some columns, asked what their ± means,
// and copied. Without it they are read as they stand. Nothing is asked of the network, and nothing is kept.
(() => {
  "use strict";

  const FEW = 3; // rows, up to which a table needs no tools
  const MOST_CHOICES = 12; // values of a column, up to which they are a list to choose from
  const SCALE = /^[σγ]$|^scale/u; // heads of columns of numbers that rows are chosen by, however many there are
  const BELOW = ".small, .paper"; // lines of a cell below the one that it is about
  const ORDER = new Intl.Collator("en", { numeric: true });
  // A number in front, perhaps after a mark or the symbol of a scale: "≈ 0.5", "σ = 10", "2,000", "−1.2e−5".
  const NUMBER = /^(?:\S+ = )?(?:[^\p{L}\p{N}∞−+.-]+)?([−+-]?)(∞|(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:e[−+-]?\d+)?)/u;
  const INTERVAL = /([−-]?[\d,]*\.?\d+(?:e[−-]?\d+)?)\)?\s*±\s*([\d,]*\.?\d+(?:e[−-]?\d+)?)/gu;

  const RANGE = /([−-]?\d\S*) to ([−-]?\d\S*)/gu;

  const squeezed = text => text.replace(/\s+/gu, " ").trim();
  const ascii = text => text.replaceAll("−", "-").replace(/(?<=\d),(?=\d{3})/gu, "");

  function made(name, properties = {}, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  }

  // Text of a node without the lines below; a space where a browser breaks the line.
  function firstLine(node) {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(BELOW)) return "";
    const text = [...node.childNodes].map(firstLine).join("");
    return { SUP: `^${text}`, BR: " " }[node.tagName] ?? text;
  }

  function numberIn(text) {
    const found = NUMBER.exec(text);
    if (!found) return NaN;
    const size = found[2] === "∞" ? Infinity : Number(ascii(found[2]));
    return /[−-]/u.test(found[1]) ? -size : size;
  }

  class Cell {
    constructor(node, column) {
      const below = [...node.querySelectorAll(BELOW)].filter(each => !each.parentElement.closest(BELOW));
      this.node = node;
      this.column = column;
      this.columns = node.colSpan;
      this.below = below.map(each => squeezed(each.textContent)).filter(Boolean);
      this.text = squeezed(firstLine(node)) || this.below.shift() || "";
      this.isMissing = this.text === "" || this.text === "–";
      const { value } = node.dataset; // of what is written for people, as a time is
      this.number = this.isMissing ? NaN : value ? Number(value) : numberIn(this.text);
    }

    // Whether all of the first line is marked so.
    is(tag) {
      const mark = this.node.querySelector(tag);
      return mark !== null && !mark.closest(BELOW) && squeezed(mark.textContent) === this.text;
    }

    lines(all) {
      return all ? [this.text, ...this.below].join(" ") : this.text;
    }
  }

  // Cells of a table's body by row and column, each in every place that it spans.
  function grid(body) {
    const rows = [...body.rows].map(() => []);
    [...body.rows].forEach((row, i) => {
      for (const node of row.cells) {
        let column = 0;
        while (rows[i][column]) column++;
        const cell = new Cell(node, column);
        for (const cells of rows.slice(i, i + node.rowSpan)) {
          for (let k = column; k < column + node.colSpan; k++) cells[k] = cell;
        }
      }
    });
    return [...body.rows].map((node, i) => ({ node, cells: rows[i] }));
  }

  class Table {
    static suits(scroll) {
      const { tHead, tBodies, classList } = scroll.querySelector("table");
      if (classList.contains("plain")) return false; // one that is read as it stands
      const heads = tHead?.rows.length === 1 ? [...tHead.rows[0].cells] : [];
      const rows = [...tBodies].reduce((sum, body) => sum + body.rows.length, 0);
      return rows > FEW && heads.length > 1 && heads.every(head => head.colSpan === 1);
    }

    constructor(scroll) {
      this.scroll = scroll;
      this.node = scroll.querySelector("table");
      this.heads = [...this.node.tHead.rows[0].cells];
      this.names = this.heads.map(head => squeezed(firstLine(head)));
      this.spans = [...this.node.querySelectorAll("[rowspan]")].some(cell => cell.rowSpan > 1);
      this.wanted = new Map(); // by column: what a cell of it must be or have
      this.hidden = new Set(); // columns
      this.heads.forEach((head, column) => this.addSorting(head, column));
      this.addTools();
    }

    // Rows as they stand on the page: `groups` of a body each, with what stays on top of it, and in it `units`, which
    // are sorted and filtered as one: a row, or all rows of a body where cells span some.
    get groups() {
      this.read ??= [...this.node.tBodies].map(body => {
        const rows = grid(body);
        const isTitle = row => row.cells[0]?.columns === this.heads.length;
        const plain = rows.filter(row => !isTitle(row));
        return { body, titles: rows.filter(isTitle), units: this.spans ? [plain] : plain.map(row => [row]) };
      });
      return this.read;
    }

    get units() {
      return this.groups.flatMap(group => group.units);
    }

    cells(column) {
      return [...new Set(this.units.flat().map(row => row.cells[column]))].filter(Boolean);
    }

    isNumeric(column) {
      const known = this.cells(column).filter(cell => !cell.isMissing);
      const numbers = known.filter(cell => !Number.isNaN(cell.number));
      return !this.heads[column].classList.contains("text") && numbers.length > known.length / 2;
    }

    // Values as they are chosen from, in order.
    values(column) {
      const found = new Map(this.cells(column).filter(cell => !cell.isMissing).map(cell => [cell.text, cell]));
      return [...found.values()].sort(this.comparison(column)).map(cell => cell.text);
    }

    // -- order

    addSorting(head, column) {
      const button = made("button", { type: "button", className: "sort" }, ...head.childNodes);
      button.addEventListener("click", () => this.sort(column));
      head.append(button);
      head.ariaSort = "none";
    }

    // By a column: ascending, then descending, then as the page has them.
    sort(column) {
      const next = { none: "ascending", ascending: "descending", descending: "none" };
      const order = next[this.heads[column].ariaSort];
      for (const head of this.heads) head.ariaSort = "none";
      this.heads[column].ariaSort = order;
      this.node.classList.toggle("sorted", order !== "none");
      const compare = order === "none" ? () => 0 : this.comparison(column, order === "descending");
      const sorted = units => [...units].sort((a, b) => compare(a[0]?.cells[column], b[0]?.cells[column]));
      for (const { body, titles, units } of this.groups) {
        body.append(...[...titles, ...sorted(units).flat()].map(row => row.node));
      }
      if (this.spans) {
        const bodies = new Map(this.groups.map(group => [group.units[0], group.body]));
        this.node.append(...sorted(this.units).map(unit => bodies.get(unit)));
      }
    }

    // Numbers as numbers where the column is of them; what has no value comes last either way.
    comparison(column, descending = false) {
      const numeric = this.isNumeric(column);
      const isLast = cell => !cell || cell.isMissing || (numeric && Number.isNaN(cell.number));
      const compare = numeric
        ? (a, b) => (a.number === b.number ? 0 : a.number < b.number ? -1 : 1)
        : (a, b) => ORDER.compare(a.text, b.text);
      return (a, b) => isLast(a) || isLast(b) ? isLast(a) - isLast(b) : (descending ? -1 : 1) * compare(a, b);
    }

    // -- tools

    addTools() {
      const label = `Table tools: ${this.scroll.getAttribute("aria-label")}`;
      const button = made("button", { type: "button", textContent: "Table tools", ariaLabel: label, ariaExpanded: "false" });
      this.state = made("span", { className: "state", role: "status" });
      const tools = made("div", { className: "tools" }, button, this.state);
      button.addEventListener("click", () => {
        const open = button.ariaExpanded !== "true";
        button.ariaExpanded = String(open);
        if (!this.panel) tools.append(this.panel = this.makePanel());
        this.panel.hidden = !open;
      });
      tools.addEventListener("keydown", event => {
        if (event.key !== "Escape" || button.ariaExpanded !== "true") return;
        button.click();
        button.focus();
      });
      this.scroll.before(tools);
    }

    makePanel() {
      const panel = made("div", { className: "panel-of-tools" });
      const filters = this.heads.map((_, column) => this.makeFilter(column)).filter(Boolean);
      if (filters.length) panel.append(made("fieldset", {}, made("legend", { textContent: "Rows" }), ...filters));
      panel.append(made("fieldset", {}, made("legend", { textContent: "Columns" }), ...this.heads.slice(1).map((_, k) => this.makeSwitch(k + 1))));
      const all = made("input", { type: "checkbox" });
      const formats = Object.keys(FORMATS).map(name => {
        const button = made("button", { type: "button", textContent: name });
        button.addEventListener("click", () => this.copy(name, all.checked));
        return button;
      });
      panel.append(made("fieldset", {}, made("legend", { textContent: "Copy as" }), ...formats, made("label", {}, all, "with the small print")));
      return panel;
    }

    // A list where there are few values, as of a scale, kinds of nets or rules; a box for other texts.
    makeFilter(column) {
      const values = this.values(column);
      const names = this.heads[column].matches(".text") || SCALE.test(this.names[column])
        || this.cells(column).every(cell => cell.node.tagName === "TH");
      if (values.length < 2 || (!names && values.length > this.cells(column).length / 2)) return null;
      const few = values.length <= MOST_CHOICES;
      if (!few && this.isNumeric(column)) return null;
      const input = few
        ? made("select", {}, made("option", { value: "", textContent: "all" }), ...values.map(value => made("option", { value, textContent: value })))
        : made("input", { type: "search", placeholder: "has …" });
      input.addEventListener("input", () => {
        const text = input.value.toLowerCase();
        const fits = few ? cell => cell.text === input.value : cell => cell.lines(true).toLowerCase().includes(text);
        if (text) this.wanted.set(column, fits);
        else this.wanted.delete(column);
        this.show();
      });
      return made("label", {}, `${this.names[column] || "first column"} `, input);
    }

    makeSwitch(column) {
      const input = made("input", { type: "checkbox", checked: true });
      input.addEventListener("change", () => {
        if (input.checked) this.hidden.delete(column);
        else this.hidden.add(column);
        this.show();
      });
      return made("label", {}, input, this.names[column] || `column ${column + 1}`);
    }

    has(unit) {
      return [...this.wanted].every(([column, fits]) => unit.some(row => row.cells[column] && fits(row.cells[column])));
    }

    // Show the rows and columns that are wanted, and say how many are not.
    show() {
      const units = this.units;
      let count = 0;
      for (const group of this.groups) {
        const shown = group.units.filter(unit => this.has(unit));
        for (const unit of group.units) for (const row of unit) row.node.hidden = !shown.includes(unit);
        group.body.hidden = shown.length === 0;
        count += shown.length;
        for (const { cells } of [...group.titles, ...group.units.flat()]) for (const cell of cells) this.narrow(cell);
      }
      this.heads.forEach((head, column) => { head.hidden = this.hidden.has(column); });
      this.state.textContent = [
        count < units.length ? `${count} of ${units.length} rows` : "",
        this.hidden.size ? `${this.hidden.size} column${this.hidden.size > 1 ? "s" : ""} hidden` : "",
      ].filter(Boolean).join(", ");
    }

    narrow(cell) {
      if (!cell) return;
      const columns = Array.from({ length: cell.columns }, (_, k) => cell.column + k).filter(k => !this.hidden.has(k));
      cell.node.hidden = columns.length === 0;
      cell.node.colSpan = Math.max(1, columns.length);
    }

    // -- copies

    // What is shown, in its order. A cell that goes on from above is `again`, one that goes on from the left is none.
    shown() {
      const columns = this.heads.map((_, column) => column).filter(column => !this.hidden.has(column));
      const rows = [];
      const cells = new Map(this.groups.flatMap(group => [...group.titles, ...group.units.flat()]).map(row => [row.node, row.cells]));
      for (const node of this.node.querySelectorAll("tbody:not([hidden]) > tr:not([hidden])")) {
        const own = columns.map((column, k) => {
          const cell = cells.get(node)[column];
          return cell && (k === 0 || cells.get(node)[columns[k - 1]] !== cell) ? cell : null;
        });
        const title = own[0]?.columns > 1 && own.slice(1).every(cell => cell === null);
        rows.push({ title, cells: own, again: own.map(cell => cell !== null && cell.node.parentElement !== node) });
      }
      return { names: columns.map(column => this.names[column]), numeric: columns.map(column => this.isNumeric(column)), rows };
    }

    async copy(name, all) {
      const text = FORMATS[name](this.shown(), all);
      this.box?.remove();
      try {
        await navigator.clipboard.writeText(text);
        this.state.textContent = `Copied as ${name}.`;
      } catch { // not allowed here: to be copied by hand
        this.box = made("textarea", { readOnly: true, value: text, rows: 8, ariaLabel: `The table as ${name}` });
        this.panel.append(this.box);
        this.box.select();
        this.state.textContent = "The browser lets no page copy; the text is selected.";
      }
    }
  }

  // -- formats

  // A spreadsheet takes text that begins so for a formula; it gets a ' before it, as in the project's own tables.
  function field(text) {
    const plain = ascii(text).replace("∞", "inf");
    if (/^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$|^-?inf$/iu.test(plain)) return plain;
    const guarded = /^[=+\-@\t\r]/u.test(text) ? `'${text}` : text;
    return /[",\n\r]/u.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
  }

  function csv({ names, rows }, all) {
    const line = texts => texts.map(field).join(",");
    return [line(names), ...rows.map(({ cells }) => line(cells.map(cell => !cell || cell.isMissing ? "" : cell.lines(all))))].join("\n") + "\n";
  }

  // As the project's Python has it, so that text shows letter by letter.
  const markdownText = text => text.replace(/[\\`*[\]<>|#!&~$@]|(?<!\w)_|_(?!\w)|:(?=\/\/)/gu, "\\$&");

  function markdown({ names, numeric, rows }, all) {
    const line = texts => `| ${texts.join(" | ")} |`;
    const text = (cell, again) => {
      if (!cell || again) return "";
      const [first, rest] = [markdownText(cell.text), all ? cell.below.map(each => ` ${markdownText(each)}`).join("") : ""];
      return (cell.is("strong") ? `**${first}**` : first) + rest;
    };
    return [
      line(names.map(markdownText)),
      line(numeric.map(each => each ? "---:" : "---")),
      ...rows.map(row => line(row.cells.map((cell, k) => text(cell, row.again[k])))),
    ].join("\n") + "\n";
  }

  const LATEX = {
    "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "#": "\\#", "_": "\\_", "%": "\\%",
    "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "<": "$<$", ">": "$>$", "|": "$|$", "[": "{[}", "]": "{]}",
    "\"": "''", "“": "``", "”": "''", "‘": "`", "’": "'", "–": "--", "—": "---", "…": "\\dots{}",
    "α": "$\\alpha$", "β": "$\\beta$", "γ": "$\\gamma$", "ε": "$\\varepsilon$", "λ": "$\\lambda$", "μ": "$\\mu$", "ν": "$\\nu$",
    "ρ": "$\\rho$", "σ": "$\\sigma$", "τ": "$\\tau$", "χ": "$\\chi$", "Δ": "$\\Delta$", "Σ": "$\\Sigma$",
    "−": "$-$", "±": "$\\pm$", "×": "$\\times$", "·": "$\\cdot$", "≈": "$\\approx$", "≤": "$\\leq$", "≥": "$\\geq$", "≠": "$\\neq$",
    "∞": "$\\infty$", "√": "$\\surd$", "→": "$\\to$", "²": "$^2$", "³": "$^3$", "₀": "$_0$", "₁": "$_1$", "₂": "$_2$",
    "●": "$\\bullet$", "○": "$\\circ$", "▲": "$\\triangle$", "▼": "$\\triangledown$", "✓": "$\\surd$", "✗": "$\\times$",
  };

  const latexText = text => [...text].map(sign => LATEX[sign] ?? sign).join("")
    .replace(/(?<![\w.])(\$-\$)?(\d+(?:\.\d+)?)e(\$-\$|-|\+)?(\d+)(?!\w)/gu, (_, sign, digits, minus, power) =>
      `$${sign ? "-" : ""}${digits}\\times10^{${/-/u.test(minus ?? "") ? "-" : ""}${power}}$`);

  function latex({ names, numeric, rows }, all) {
    const line = texts => `${texts.join(" & ")} \\\\`;
    const text = (cell, again) => {
      if (!cell || again) return "";
      const first = latexText(cell.text);
      const marked = cell.is("strong") ? `\\textbf{${first}}` : cell.is("u") ? `\\underline{${first}}` : first;
      return marked + (all ? cell.below.map(each => ` ${latexText(each)}`).join("") : "");
    };
    return [
      "% \\usepackage{booktabs}",
      `\\begin{tabular}{${numeric.map(each => each ? "r" : "l").join("")}}`,
      "\\toprule",
      line(names.map(latexText)),
      "\\midrule",
      ...rows.map(row => row.title
        ? `\\addlinespace\\multicolumn{${names.length}}{l}{\\emph{${latexText(row.cells[0].lines(all))}}} \\\\`
        : line(row.cells.map((cell, k) => text(cell, row.again[k])))),
      "\\bottomrule",
      "\\end{tabular}",
      "",
    ].join("\n");
  }

  const FORMATS = { LaTeX: latex, CSV: csv, Markdown: markdown };

  // -- what a ± means, and the interval that it makes: where the pointer or the focus is

  const note = made("div", { id: "interval", role: "tooltip", hidden: true });

  const headOf = cell => cell.closest("table").tHead?.rows[0].cells[cell.cellIndex];
  const spreadOf = cell => headOf(cell)?.dataset.spread ?? cell.closest("table").dataset.spread;

  function interval([, middle, half]) {
    const [mean, width] = [middle, half].map(text => Number(ascii(text)));
    const places = /e/u.test(middle + half) ? null : (/\.(\d+)/u.exec(middle)?.[1].length ?? 0);
    const written = number => (places === null ? number.toPrecision(3) : number.toFixed(places)).replace("-", "−");
    return `${middle} ± ${half}: from ${written(mean - width)} to ${written(mean + width)}`;
  }

  // Lines on a cell; none where it has no interval.
  function told(cell) {
    const lines = squeezed([...cell.childNodes].map(each => each.textContent).join(" "));
    const found = [...lines.matchAll(INTERVAL)].map(interval);
    found.push(...[...lines.matchAll(RANGE)].map(([, low, high]) => `from ${low} to ${high}`));
    if (!found.length) return [];
    const row = cell.parentElement.querySelector("th");
    const names = [headOf(cell), row].filter(Boolean).map(each => squeezed(firstLine(each)));
    if (row && !/[^\d.e−-]/u.test(names[1])) names[1] = `${squeezed(firstLine(headOf(row)))} = ${names[1]}`;
    return [names.join(", "), ...found, spreadOf(cell)];
  }

  let subject = null; // cell that the note is on

  function tell(event) {
    const cell = event.target.closest?.("table[data-spread] td, td[data-spread]");
    const lines = cell && spreadOf(cell) ? told(cell) : [];
    note.hidden = lines.length === 0;
    document.querySelectorAll("[aria-describedby=interval]").forEach(each => each.removeAttribute("aria-describedby"));
    if (note.hidden) return;
    note.replaceChildren(...lines.map(line => made("div", { textContent: line })));
    event.target.setAttribute("aria-describedby", "interval");
    subject = cell;
    place();
  }

  function place() {
    if (note.hidden) return;
    const at = subject.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = note;
    const below = at.bottom + offsetHeight < innerHeight;
    note.style.top = `${Math.max(0, below ? at.bottom : at.top - offsetHeight)}px`;
    note.style.left = `${Math.max(4, Math.min(at.left, document.documentElement.clientWidth - offsetWidth - 4))}px`;
  }

  const hush = () => { note.hidden = true; };

  // -- a table that is as narrow as its place needs no scrolling of its own: its head stays in the window instead

  const TIGHTER = ["tight", "dense"]; // ways to set a table, one after the other until it fits

  const fits = scroll => scroll.firstElementChild.offsetWidth <= scroll.offsetWidth;

  const settle = scroll => {
    scroll.classList.remove(...TIGHTER);
    for (const way of TIGHTER) scroll.classList.toggle(way, !fits(scroll));
    scroll.classList.toggle("fits", fits(scroll));
    if (!fits(scroll)) scroll.classList.remove(...TIGHTER); // for nothing
    scroll.toggleAttribute("tabindex", !fits(scroll));
    if (!fits(scroll)) scroll.tabIndex = 0;
  };

  const sizes = new ResizeObserver(entries => {
    const scrolls = new Set(entries.map(({ target }) => target.closest(".scroll")));
    requestAnimationFrame(() => scrolls.forEach(settle)); // not at once, as that would change what is observed
  });

  // -- menus: arrows lead through their links, and Escape closes them, as going elsewhere does

  function move(menu, event) {
    const [summary, list] = menu.children;
    const links = [...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && menu.open) {
      menu.open = false;
      summary.focus();
    }
    if (!step) return;
    event.preventDefault();
    menu.open = true;
    const at = links.indexOf(document.activeElement);
    links.at(at < 0 ? Math.min(0, step) : (at + step) % links.length).focus(); // from the menu itself the first or last
  }

  for (const menu of document.querySelectorAll("details.menu")) {
    menu.addEventListener("keydown", event => move(menu, event));
    menu.addEventListener("focusout", event => { if (!menu.contains(event.relatedTarget)) menu.open = false; });
  }

  (document.querySelector("main") ?? document.body).append(note);
  for (const scroll of document.querySelectorAll(".scroll")) {
    if (Table.suits(scroll)) new Table(scroll);
    sizes.observe(scroll);
    sizes.observe(scroll.firstElementChild);
  }
  for (const cell of document.querySelectorAll("table[data-spread] td:not(:has(a))")) {
    if (told(cell).length) cell.tabIndex = 0;
  }
  for (const name of ["mouseover", "focusin"]) document.addEventListener(name, tell);
  for (const name of ["mouseout", "focusout"]) document.addEventListener(name, hush);
  document.addEventListener("scroll", place, true);
  document.addEventListener("keydown", event => { if (event.key === "Escape") hush(); });
})();

"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  // Theme: the system's, or the one chosen, which is kept where the browser keeps anything for this page.
  const store = (() => { try { return window.localStorage; } catch { return null; } })();
  const theme = $("theme");
  const dress = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  };
  theme.value = store?.getItem("wootz-theme") ?? "";
  dress(theme.value);
  theme.addEventListener("change", () => {
    dress(theme.value);
    try { store?.setItem("wootz-theme", theme.value); } catch { /* as if nothing were kept */ }
  });

  // Filter: a word that is part of a format's name chooses columns, one that is part of a kernel's, rows.
  const tables = all(".matrix");
  const formats = all("#matrix thead [data-f]");
  const rows = all(".matrix tr[data-k]");
  const matches = (name, words) => !words.length || words.some((word) => name.toLowerCase().includes(word));
  const filter = () => {
    const words = $("filter").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
    const hits = (names) => words.filter((word) => names.some((name) => name.toLowerCase().includes(word)));
    const ofRows = hits(rows.map((row) => row.dataset.k));
    const ofColumns = hits(formats.map((head) => head.dataset.f));
    const nothing = words.some((word) => !ofRows.includes(word) && !ofColumns.includes(word));
    for (const row of rows) {
      const without = row.closest("#plain") && ofColumns.length && !ofRows.length;
      row.hidden = Boolean(nothing || without || !matches(row.dataset.k, ofRows));
    }
    const shown = formats.map((head) => matches(head.dataset.f, ofColumns));
    for (const row of all("#matrix tr[data-k], #matrix thead tr:last-child"))
      shown.forEach((visible, i) => { row.cells[i + 1].hidden = !visible; });
    let first = 0;
    for (const group of all("#matrix [scope=colgroup]")) {
      const size = Number(group.dataset.size ??= group.colSpan);
      const count = shown.slice(first, first + size).filter(Boolean).length;
      first += size;
      group.hidden = !count;
      group.colSpan = Math.max(count, 1);
    }
    for (const body of all(".matrix tbody")) body.hidden = !all("tr[data-k]", body).some((row) => !row.hidden);
    const kernels = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.k)).size;
    $("shown").value = words.length ? `${kernels} kernels, ${shown.filter(Boolean).length} formats shown` : "";
    tables.forEach((table) => rove(table));
  };

  // Arrow keys in the tables: one link of each is in the tab order.
  const visible = (table) => all("tr[data-k]", table).filter((row) => !row.hidden && !row.parentNode.hidden);
  const linkAt = (row, column) => (row.cells[column]?.hidden ? null : row.cells[column]?.querySelector("a"));
  const rove = (table, link) => {
    const links = all("tr[data-k] a", table);
    const open = visible(table).flatMap((row) => all("a", row).filter((a) => !a.closest("td").hidden));
    const current = link ?? open.find((a) => a.tabIndex === 0 && "roving" in table.dataset) ?? open[0];
    table.dataset.roving = "";
    for (const a of links) a.tabIndex = a === current ? 0 : -1;
  };
  const step = (table, link, down, right) => {
    const list = visible(table);
    let row = list.indexOf(link.closest("tr"));
    let column = link.closest("td").cellIndex;
    for (;;) {
      row += down;
      column += right;
      if (!list[row] || column < 1 || !list[row].cells[column]) return null;
      const found = linkAt(list[row], column);
      if (found) return found;
    }
  };
  const edge = (link, last) => {
    const links = all("a", link.closest("tr")).filter((a) => !a.closest("td").hidden);
    return last ? links.at(-1) : links[0];
  };
  const moves = {
    ArrowDown: (t, a) => step(t, a, 1, 0),
    ArrowUp: (t, a) => step(t, a, -1, 0),
    ArrowRight: (t, a) => step(t, a, 0, 1),
    ArrowLeft: (t, a) => step(t, a, 0, -1),
    Home: (t, a) => edge(a, false),
    End: (t, a) => edge(a, true),
  };
  const say = (event) => {
    const link = event.target.closest?.("td a");
    if (!link) return;
    $("readout").textContent = link.getAttribute("aria-label");
    link.title = link.getAttribute("aria-label");
  };
  const hush = (table) => {
    if (!table.contains(document.activeElement)) $("readout").textContent = "";
  };
  for (const table of tables) {
    table.addEventListener("keydown", (event) => {
      const link = event.target.closest("td a");
      if (!link || !moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const next = moves[event.key](table, link);
      if (!next) return;
      rove(table, next);
      next.focus();
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    table.addEventListener("focusin", (event) => {
      const link = event.target.closest("td a");
      if (link) rove(table, link);
      say(event);
    });
    table.addEventListener("mouseover", say);
    for (const event of ["mouseleave", "focusout"]) table.addEventListener(event, () => hush(table));
  }

  // One target, or all.
  $("targets").addEventListener("change", (event) => {
    const matrix = $("matrix");
    const chosen = Number(event.target.value);
    matrix?.classList.toggle("one", chosen > 0);
    for (const link of all("td a", matrix ?? document.createElement("div")))
      [...link.children].forEach((bar, i) => bar.classList.toggle("on", i + 1 === chosen));
    all("#plain tr").forEach((row) => {
      if (row.cells.length > 1)
        [...row.cells].forEach((cell, i) => { cell.hidden = chosen > 0 && i > 0 && i !== chosen; });
    });
    tables.forEach((table) => rove(table));
  });

  // A unit's panel. The address says which: #kernel/format/target.
  const panel = $("panel");
  const names = all("#targets input").slice(1).map((input) => input.nextSibling.textContent);
  const place = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
  const safe = (part) => part.replace(/^\.|[^A-Za-z0-9_.-]/gu, (c) => `=${c.codePointAt(0).toString(16)}`) || "=";
  const bars = (kernel, format) => {
    const column = formats.findIndex((head) => head.dataset.f === format) + 1;
    const own = format === "-" ? "#plain" : "#matrix";
    const row = all(`${own} tr[data-k]`).find((each) => each.dataset.k === kernel);
    if (!row || (format !== "-" && !column)) return [];
    const cells = format === "-" ? [...row.cells].slice(1).map((cell) => cell.querySelector("i")) : all("i", row.cells[column]);
    return names.map((target, i) => ({ target, bar: cells[i] })).filter(({ bar }) => bar && !bar.classList.contains("n"));
  };
  let pending = null;
  let opener = null;
  window.wootz = (data) => { const take = pending; pending = null; take?.(data); };
  const load = (path) => new Promise((resolve, reject) => {
    const script = make("script", undefined, { src: path });
    pending = resolve;
    script.addEventListener("error", () => reject(new Error(`${path} is not beside this page: copy the whole folder.`)));
    script.addEventListener("load", () => script.remove());
    document.head.append(script);
  });
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };

  const TOKEN = /(?<comment>\/\/[^\n]*|\/\*[^]*?\*\/)|(?<directive>^[ \t]*#[^\n]*)|(?<literal>"(?:\\.|[^"\\\n])*"|\b0x[0-9a-fA-F]+\w*|\b\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)|(?<word>\b(?:__\w+__|alignas|auto|bool|break|case|char|const|constant|constexpr|continue|default|device|do|double|else|enum|extern|float|for|half|if|inline|int|kernel|long|namespace|operator|return|short|signed|sizeof|static|struct|switch|template|thread|threadgroup|typedef|typename|u?int(?:8|16|32|64)_t|union|unsigned|using|void|volatile|while)\b)/gm;
  const paint = (node) => {
    if (!CSS.highlights || node.length > 600000) return;
    const found = { comment: [], directive: [], literal: [], word: [] };
    for (const match of node.data.matchAll(TOKEN)) {
      const kind = Object.keys(found).find((key) => match.groups[key] !== undefined);
      const range = new StaticRange({ startContainer: node, startOffset: match.index, endContainer: node, endOffset: match.index + match[0].length });
      found[kind].push(range);
    }
    for (const [kind, ranges] of Object.entries(found)) {
      const highlight = CSS.highlights.get(kind) ?? new Highlight();
      for (const range of ranges) highlight.add(range);
      CSS.highlights.set(kind, highlight);
    }
  };
  const section = ({ title, head, rows: lines }) => {
    const box = make("section");
    box.append(make("h3", title));
    if (head && !head.length) {
      for (const [line] of lines) box.append(make("code", line));
      return box;
    }
    const scroll = make("div", undefined, { class: "scroll" });
    const table = make("table");
    if (head) {
      const top = table.createTHead().insertRow();
      for (const name of head) top.append(make("th", name, { scope: "col" }));
    }
    const body = table.createTBody();
    for (const line of lines) {
      const row = body.insertRow();
      line.forEach((text, i) => row.append(!head && !i ? make("th", text, { scope: "row" }) : make("td", text)));
    }
    scroll.append(table);
    box.append(scroll);
    return box;
  };
  const source = async ({ file, note, bytes, data }) => {
    const box = make("details");
    box.append(make("summary", note ? file : `${file}, ${bytes.toLocaleString("en")} bytes`));
    if (note) {
      box.append(make("p", note, { class: "note" }));
      return box;
    }
    box.addEventListener("toggle", async () => {
      if (!box.open || box.dataset.full) return;
      box.dataset.full = "1";
      const text = await inflate(data);
      const view = make("div", undefined, { class: "source", tabindex: "0", role: "region", "aria-label": file });
      const count = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
      view.append(make("pre", Array.from({ length: count }, (_, i) => i + 1).join("\n"), { class: "lines", "aria-hidden": "true" }));
      const code = make("pre", text);
      view.append(code);
      box.append(view);
      paint(code.firstChild);
    });
    return box;
  };
  const show = async (kernel, format, target) => {
    const body = $("body");
    CSS.highlights?.clear();
    body.setAttribute("aria-busy", "true");
    body.replaceChildren(make("p", "Loading …", { class: "note" }));
    try {
      const data = await load(`units/${[kernel, format, target].map(safe).join("/")}.js`);
      const sources = await Promise.all(data.sources.map(source));
      const text = make("section");
      text.append(make("h3", "Emitted text"), ...(sources.length ? sources : [make("p", "This unit is not in the index: there is no text.", { class: "note" })]));
      const parts = [...data.sections.map(section), text];
      const jump = make("nav", undefined, { class: "jump", "aria-label": "Parts" });
      jump.append(make("code", `wootz explain ${kernel} ${format} ${target}`), ...parts.map((part) => {
        const button = make("button", part.firstChild.textContent, { type: "button" });
        button.addEventListener("click", () => part.scrollIntoView());
        return button;
      }));
      body.replaceChildren(jump, ...parts);
      if (sources[0]) sources[0].open = true;
    } catch (error) {
      body.replaceChildren(make("p", error.message, { class: "note", role: "alert" }));
    }
    body.setAttribute("aria-busy", "false");
    body.scrollTop = 0;
  };
  const open = () => {
    const parts = location.hash.slice(1).split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
    const [kernel, format = "", wanted] = parts;
    const found = parts.length > 1 ? bars(kernel, format) : [];
    if (!found.length) {
      if (panel.open) panel.close();
      return;
    }
    const chosen = $("targets").querySelector(":checked").value;
    const target = (found.find((each) => each.target === (wanted ?? names[chosen - 1])) ?? found[0]).target;
    $("panel-title").textContent = format === "-" ? kernel : `${kernel} × ${format}`;
    $("tabs").replaceChildren(...found.map((each) => {
      const selected = each.target === target;
      const tab = make("button", undefined, { type: "button", role: "tab", id: `tab-${each.target}`, "aria-controls": "body", "aria-selected": selected, tabindex: selected ? "0" : "-1" });
      const bar = make("i", undefined, { "aria-hidden": "true" });
      bar.className = each.bar.className;
      tab.append(bar, each.target);
      tab.addEventListener("click", () => history.replaceState(null, "", place(kernel, format, each.target)) ?? open());
      return tab;
    }));
    $("body").setAttribute("aria-labelledby", `tab-${target}`);
    if (!panel.open) {
      opener = document.activeElement;
      panel.showModal();
      $("tabs").querySelector("[aria-selected=true]").focus();
    } else if ($("tabs").dataset.focus) $("tabs").querySelector("[aria-selected=true]").focus();
    delete $("tabs").dataset.focus;
    show(kernel, format, target);
  };
  $("tabs").addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const tabs = all("button", $("tabs"));
    $("tabs").dataset.focus = "1";
    tabs.at((tabs.indexOf(event.target) + way) % tabs.length).click();
  });
  panel.addEventListener("close", () => {
    if (location.hash.includes("/")) history.replaceState(null, "", location.pathname + location.search);
    CSS.highlights?.clear();
    opener?.focus?.();
  });
  panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });
  $("close").addEventListener("click", () => panel.close());
  $("filter").addEventListener("input", filter);
  window.addEventListener("hashchange", open);
  tables.forEach((table) => rove(table));
  if ($("filter").value) filter();
  open();
})();

// The page: state in the address, fields from the panels, results, and the map beside them.

import { toClipboard } from "./copy.js";
import { LABEL_COUNT, PointMap, labelColour, shade, shadesOf } from "./map.js";
import { WORDS, changes, panelsFor } from "./panels.js";
import { Refused, ask, later, takeToken } from "./service.js";

const get = (id) => document.getElementById(id);
const make = (tag, content = {}, ...children) => { const e = Object.assign(document.createElement(tag), content); e.append(...children); return e; };

const state = { panel: "", values: {}, words: {}, map: "pca", colour: "", only: null };
let card, panels, panel, map = null, corpus = null, likelihoods = null, fieldsOf = {}, running = null, timer = 0;
let last = "", loaded = null, loadedFor = null, touched = null, current = null, numberOf = new Map();
const maps = {};

start().catch((error) => { get("verdict").textContent = error.message; get("problem").textContent = error.message; get("problem").hidden = false; });

async function start() {
  takeToken(new URLSearchParams(location.hash.slice(1)));
  const given = new URLSearchParams(location.hash.slice(1));
  given.delete("token");
  history.replaceState(null, "", `#${given}`);
  card = await ask("api/model");
  panels = panelsFor(card);
  showCard();
  get("main").classList.toggle("alone", !card.corpus);
  showTabs();
  showWords();
  if (card.corpus) await startMap(given);
  restore(given);
  addEventListener("hashchange", () => restore(new URLSearchParams(location.hash.slice(1))));
  get("copies").addEventListener("click", copy);
}

function showCard() {
  document.title = `${card.name} – zentence`;
  get("name").textContent = card.name;
  get("verdict").textContent = card.verdict;
  get("state").textContent = { healthy: "healthy", collapsed: "collapsed", ignored: "code ignored", unknown: "not fully measured", "no code": "language model" }[card.state];
  get("state").dataset.state = card.state;
  get("state").hidden = false;
  const facts = [["Code", card.has_code ? `${card.size} dimensions` : "none"], ["Vocabulary", card.vocabulary.toLocaleString("en")], ["Parameters", card.parameters.toLocaleString("en")]];
  if (card.max_words) facts.push(["Longest sentence", `${card.max_words} words`]);
  if (card.corpus) facts.push(["Map", `${card.corpus.points.toLocaleString("en")} of ${card.corpus.sentences.toLocaleString("en")} sentences of ${card.corpus.name}`]);
  get("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })]));
  const cell = (text, className = "") => make("td", { textContent: text, className });
  get("figures").tBodies[0].replaceChildren(...card.figures.map((f) => make("tr", {},
    cell(f.name), cell(shortNumber(f.value) + (f.of ? ` of ${f.of}` : ""), "number"), cell(f.standard_error === null ? "" : f.standard_error.toPrecision(2), "number"),
    cell(f.unit), cell(f.kind.replaceAll("_", " ")), cell(f.samples ?? "", "number"))));
  get("figures").hidden = !card.figures.length;
  const about = card.figures.length ? [`Measured on ${card.figures[0].split}, ${card.figures[0].count.toLocaleString("en")} sentences. ±: standard error. K: samples a sentence.`] : [];
  get("kinds").replaceChildren(...[...about, ...Object.entries(card.kinds).map(([kind, meaning]) => `${kind.replaceAll("_", " ")}: ${meaning}`)].map((text) => make("li", { textContent: text })));
  get("settings").textContent = card.settings;
}

const shortNumber = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 1000 ? value.toFixed(0) : value.toPrecision(4));

// Map

async function startMap(given) {
  get("map-note").textContent = "loading …";
  [corpus, maps.pca] = await Promise.all([ask("api/corpus"), ask("api/map/pca")]);
  corpus.sentences.forEach((text, i) => { if (!numberOf.has(text)) numberOf.set(text, i); });
  map = new PointMap(get("map"), get("tip"), { take, hover: showTip });
  const colours = [...(corpus.label ? [["label", "label"]] : []), ["length", "length"], ["likelihood", "log-likelihood"]];
  get("colour").replaceChildren(...colours.map(([value, text]) => make("option", { value, textContent: text })));
  get("colour").addEventListener("change", () => { state.only = null; state.colour = get("colour").value; colourMap(); save(); });
  get("whole").addEventListener("click", () => map.fit());
  for (const button of document.querySelectorAll("[data-map]")) button.addEventListener("click", () => { state.map = button.dataset.map; placeMap(); save(); });
  get("map-note").textContent = pointsSaid();
  const wanted = given.get("map") === "tsne";
  const button = document.querySelector("[data-map=tsne]");
  button.textContent = "t-SNE …";
  later("api/map/tsne", () => {}).then((found) => {
    button.textContent = "t-SNE";
    button.title = found.reason ?? "";
    if (found.status !== "ready") return;
    maps.tsne = found;
    button.disabled = false;
    if (wanted && state.map === "tsne") placeMap();
  }).catch(() => { button.textContent = "t-SNE"; });
}

const pointsSaid = () => `${corpus.sentences.length.toLocaleString("en")} sentences`;

function placeMap() {
  const method = maps[state.map] ? state.map : "pca";
  for (const button of document.querySelectorAll("[data-map]")) button.setAttribute("aria-pressed", button.dataset.map === method);
  map.setPoints(maps[method].x, maps[method].y);
  get("axis-x").textContent = maps[method].axes[0];
  get("axis-y").textContent = maps[method].axes[1];
  map.shown = method;
  drawResult();
}

async function colourMap() {
  get("colour").value = state.colour;
  if (state.colour === "label") {
    const shared = corpus.labels.length > LABEL_COUNT;
    const last = shared ? LABEL_COUNT : corpus.labels.length - 1;
    map.setColours(corpus.label.map((n) => Math.min(n, last)), Array.from({ length: last + 1 }, (_, n) => labelColour(n)), state.only);
    const names = [...corpus.labels.slice(0, shared ? LABEL_COUNT : undefined), ...(shared ? ["other labels"] : [])];
    get("legend").replaceChildren(...names.map((name, n) => {
      const dot = make("i");
      dot.style.background = labelColour(n);
      const button = make("button", { type: "button", title: `Only ${name}` }, dot, name);
      button.setAttribute("aria-pressed", state.only === n);
      button.addEventListener("click", () => { state.only = state.only === n ? null : n; colourMap(); });
      return button;
    }));
    return;
  }
  let values = corpus.lengths, unit = "words";
  if (state.colour === "likelihood") {
    unit = "nats (lower bound)";
    if (!likelihoods) {
      map.setColours(corpus.lengths.map(() => 0), ["#8a919c"]);
      get("legend").replaceChildren("scoring the sentences …");
      try {
        likelihoods ??= await later("api/likelihoods", (now) => { if (state.colour === "likelihood") get("legend").textContent = `scoring the sentences: ${Math.round(now.done * 100)} %`; });
      } catch (error) { likelihoods = { status: "failed", reason: error.message }; }
      if (state.colour !== "likelihood") return;
    }
    if (likelihoods.status !== "ready") { get("legend").textContent = likelihoods.reason ?? "no likelihoods"; return; }
    values = likelihoods.values;
  }
  const { of, colours, low, high } = shadesOf(values);
  map.setColours(of, colours);
  const bar = make("canvas", { width: 140, height: 1 }), c = bar.getContext("2d");
  for (let x = 0; x < 140; x++) { c.fillStyle = shade(x / 139); c.fillRect(x, 0, 1, 1); }
  get("legend").replaceChildren(shortNumber(low), bar, `${shortNumber(high)} ${unit}`);
}

function showTip(i, tip, spoken) {
  const notes = [`${corpus.lengths[i]} words`];
  if (corpus.label) notes.unshift(corpus.labels[corpus.label[i]]);
  if (likelihoods?.values) notes.push(`log p ≥ ${likelihoods.values[i].toFixed(1)} nats`);
  tip.replaceChildren(corpus.sentences[i], make("small", { textContent: notes.join(" · ") }));
  if (spoken) get("read-out").textContent = corpus.sentences[i];
}

// A point that is clicked goes into the marked field, and the mark to the next one.
function take(i) {
  const own = panel.fields(card).filter((f) => f.kind === "sentence");
  if (!own.length) { switchTo(panels[0].id); return take(i); }
  const place = Math.max(0, own.findIndex((f) => f.name === panel.next)), field = own[place];
  state.values[panel.id][field.name] = corpus.sentences[i];
  fieldsOf[field.name].value = corpus.sentences[i];
  changedSentence(field);
  mark(own[(place + 1) % own.length].name);
  changed(0);
}

function mark(name) {
  panel.next = name;
  for (const field of document.querySelectorAll("#fields .field")) field.classList.toggle("next", !!map && field.dataset.name === name);
}

// Panels

function showTabs() {
  get("tabs").replaceChildren(...panels.map((p) => {
    const tab = make("button", { type: "button", role: "tab", textContent: p.title, id: `tab-${p.id}` });
    tab.setAttribute("aria-controls", "panel");
    tab.addEventListener("click", () => switchTo(p.id));
    return tab;
  }));
  get("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = (panels.indexOf(panel) + step + panels.length) % panels.length;
    switchTo(panels[place].id);
    get(`tab-${panel.id}`).focus();
    event.preventDefault();
  });
}

function switchTo(id) {
  panel = panels.find((p) => p.id === id) ?? panels[0];
  state.panel = panel.id;
  const own = (state.values[panel.id] ??= {});
  for (const field of panel.fields(card)) own[field.name] ??= field.value ?? field.options?.[0][0] ?? "";
  carry(own);
  for (const p of panels) {
    const tab = get(`tab-${p.id}`);
    tab.setAttribute("aria-selected", p === panel);
    tab.tabIndex = p === panel ? 0 : -1;
    if (p === panel) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  get("panel").setAttribute("aria-labelledby", `tab-${panel.id}`);
  get("hint").textContent = panel.hint;
  get("words").hidden = panel.words === false;
  showFields();
  clearResult();
  changed(0);
}

// A sentence goes along from panel to panel, into a field that is still empty.
function carry(own) {
  const first = panel.fields(card).find((f) => f.kind === "sentence");
  if (first && !own[first.name]) own[first.name] = last;
}

function showFields() {
  fieldsOf = {};
  const own = state.values[panel.id], form = get("fields");
  form.replaceChildren(...panel.fields(card).map((field) => fieldFor(field, own, (waits) => { changedSentence(field); changed(waits); })));
  const sentences = panel.fields(card).filter((f) => f.kind === "sentence");
  if (sentences.length) mark((sentences.find((f) => !own[f.name]) ?? sentences[0]).name);
  showWhen();
}

function showWhen() {
  for (const field of panel.fields(card)) {
    if (field.when) document.querySelector(`#fields [data-name="${field.name}"]`).hidden = !field.when(state.values[panel.id]);
  }
}

function fieldFor(field, own, told) {
  if (field.kind === "dimensions") return make("div", { id: "dimensions", hidden: true });
  const box = make("label", { className: "field" });
  box.dataset.name = field.name;
  let input;
  const title = make("span", {}, field.label), output = make("output");
  if (field.kind === "sentence" || field.kind === "lines") {
    input = make("textarea", { rows: 2, maxLength: card.limits.characters * (field.kind === "lines" ? 10 : 1), spellcheck: false, value: own[field.name] ?? "" });
    if (field.kind === "sentence") {
      input.placeholder = map ? "Type a sentence, or click a point on the map" : "Type a sentence";
      title.append(make("span", { className: "clicks", textContent: "takes the next click on the map" }));
      input.addEventListener("focus", () => mark(field.name));
      input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); changed(0); } });
    }
    input.addEventListener("input", () => { own[field.name] = field.kind === "sentence" ? input.value.replace(/\s+/g, " ").trim() : input.value; told(350); });
  } else if (field.kind === "range") {
    input = make("input", { type: "range", min: field.min, max: field.max, step: field.step, value: own[field.name] });
    title.append(output);
    output.textContent = own[field.name];
    input.addEventListener("input", () => { own[field.name] = Number(input.value); output.textContent = input.value; told(60); });
  } else if (field.kind === "choice") {
    input = make("select", {}, ...field.options.map(([value, textContent]) => make("option", { value, textContent })));
    input.value = own[field.name];
    if (input.selectedIndex < 0) { input.selectedIndex = 0; own[field.name] = input.value; }
    input.addEventListener("change", () => { own[field.name] = input.value; showWhen(); told(0); });
  } else if (field.kind === "check") {
    input = make("input", { type: "checkbox", checked: !!own[field.name] });
    input.addEventListener("change", () => { own[field.name] = input.checked; told(0); });
  } else {
    input = make("input", { type: "number", min: field.min, max: field.max, step: 1, value: own[field.name] });
    input.addEventListener("input", () => { const n = Math.floor(Number(input.value)); if (n >= field.min && n <= field.max) { own[field.name] = n; told(200); } });
  }
  fieldsOf[field.name] = input;
  input.id = `field-${field.name}`;
  box.append(title, input);
  return box;
}

function showWords() {
  const own = state.words;
  for (const field of WORDS) own[field.name] ??= field.value ?? field.options?.[0][0] ?? false;
  if (!card.has_code && own.method === "greedy") own.method = "sample";
  const form = get("word-fields"), told = (waits) => { saidWords(); changed(waits); };
  form.replaceChildren(...WORDS.map((field) => fieldFor(field, own, told)));
  const again = make("button", { type: "button", textContent: "Another seed", id: "again" });
  again.addEventListener("click", () => { own.seed = (own.seed + 1) % 2147483647; showWords(); changed(0); get("again").focus(); });
  form.append(again);
  saidWords();
}

function saidWords() {
  const own = state.words;
  for (const field of WORDS) if (field.method) document.querySelector(`#word-fields [data-name="${field.name}"]`).hidden = own.method !== field.method;
  get("words-said").textContent = [own.method === "beam" ? `beam search, ${own.beam}` : own.method,
    ...(own.method === "sample" ? [`temperature ${own.temperature}`] : []), `seed ${own.seed}`].join(", ");
}

function changedSentence(field) {
  if (panel.id !== "dimensions" || field.kind !== "sentence") return;
  state.values.dimensions.z = "";
  touched = null;
}

// Results: the newest question counts; an older one that is still being answered is dropped.

function changed(waits) {
  clearTimeout(timer);
  timer = setTimeout(run, waits);
}

async function run() {
  save();
  const own = panel, v = { ...state.values[own.id] };
  last = v.s || v.a || last;
  const needed = own.fields(card).filter((f) => f.kind === "sentence").every((f) => v[f.name]);
  running?.abort();
  if (!(own.ready ? own.ready(v) : needed)) { clearResult(); get("empty").textContent = waitsFor(own, v); return; }
  const control = (running = new AbortController());
  busy(true);
  try {
    const context = { ask, signal: control.signal, card };
    if (own.load && loadedFor !== v.s) { loaded = await own.load(v, context); loadedFor = v.s; }
    if (own.load && panel === own) showDimensions();
    const found = await own.run(v, { ...state.words }, { ...context, loaded, touched });
    if (control.signal.aborted) return;
    current = { ...found, v, panel: own, words: { ...state.words }, touched };
    showResult();
    await drawResult();
  } catch (error) {
    if (error.name === "AbortError" || control.signal.aborted) return;
    clearResult();
    get("problem").textContent = error instanceof Refused ? error.message : `Something went wrong: ${error.message}`;
    get("problem").hidden = false;
  } finally {
    if (running === control) busy(false);
  }
}

function waitsFor(own, v) {
  const open = own.fields(card).filter((f) => f.kind === "sentence" && !v[f.name]).map((f) => f.label.split(",")[0]);
  const how = map ? "type, or click on the map" : "type it above";
  return open.length ? `Still needed: ${open.join(", ")} (${how}).` : "Still needed: sentences for both directions.";
}

function busy(on) {
  get("results").setAttribute("aria-busy", on);
  get("spinner").hidden = !on;
}

function clearResult() {
  current = null;
  busy(false);
  get("rows").replaceChildren();
  get("empty").textContent = "";
  get("warnings").replaceChildren();
  get("problem").hidden = true;
  get("command").textContent = get("python").textContent = "";
  if (panel.id !== "dimensions" && get("dimensions")) get("dimensions").hidden = true;
  setCopies(false);
  drawResult();
}

function setCopies(on) { for (const button of get("copies").querySelectorAll("button")) button.disabled = !on; }

function showResult() {
  get("problem").hidden = true;
  get("empty").textContent = "";
  const notes = (current.warnings ?? []).map((text) => make("li", { textContent: text }));
  get("warnings").replaceChildren(...notes, ...(current.note ? [make("li", { className: "note", textContent: current.note })] : []));
  get("rows").replaceChildren(...current.rows.map((row) => {
    if (row.heading) return make("h3", { textContent: row.heading });
    const line = make("div", { className: `result ${row.kind ?? ""}` }, make("span", { className: "tag", textContent: row.tag }), make("span", { className: "said", textContent: row.text || "(no words)" }));
    if (row.point !== undefined) {
      line.classList.add("pick");
      line.tabIndex = 0;
      line.title = "Show on the map";
      const show = () => map.hover(row.point), hide = () => map.hover(-1);
      line.addEventListener("mouseenter", show);
      line.addEventListener("focus", show);
      line.addEventListener("mouseleave", hide);
      line.addEventListener("blur", hide);
    }
    return line;
  }));
  get("command").textContent = asText("command");
  get("python").textContent = asText("python");
  setCopies(true);
}

function asText(kind) {
  if (kind === "text") return current.rows.map((row) => row.heading ?? `${row.tag}\t${row.text}`).join("\n");
  const context = { model: card.model, card, loaded, touched: current.touched };
  return current.panel[kind](current.v, current.words, context);
}

async function copy(event) {
  const kind = event.target.dataset?.copy;
  if (!kind || !current) return;
  const done = await toClipboard(asText(kind));
  get("copied").textContent = done ? `${{ text: "Text", command: "Command", python: "Python" }[kind]} copied` : "Could not copy: it stands below";
  if (!done) get("shown").open = true;
  setTimeout(() => { get("copied").textContent = ""; }, 2500);
}

// Path and marks on the map: codes are placed by the service.
async function drawResult() {
  if (!map) return;
  const drawn = current, path = drawn?.path ?? [], spots = drawn?.spots ?? [];
  map.lit = (drawn?.rows ?? []).filter((row) => row.point !== undefined).map((row) => row.point);
  if (!path.length && !spots.length) { map.path = []; map.marks = []; map.paint(); return; }
  try {
    const placed = await ask("api/project", { codes: [...path, ...spots.map((s) => s.code)], method: map.shown ?? "pca" });
    if (drawn !== current) return;
    const points = placed.x.map((x, i) => [x, placed.y[i]]);
    map.path = points.slice(0, path.length);
    map.marks = spots.map((s, i) => ({ letter: s.letter, x: points[path.length + i][0], y: points[path.length + i][1] }));
    get("map").dataset.path = String(map.path.length);
  } catch { map.path = []; map.marks = []; }
  map.paint();
}

// Dimensions

function showDimensions() {
  const box = get("dimensions"), own = state.values.dimensions;
  box.hidden = false;
  if (box.dataset.for === loadedFor && box.dataset.z === own.z) return;
  box.dataset.for = loadedFor;
  box.dataset.z = own.z;
  const set = changes(own.z), most = Math.max(...loaded.rates, 1e-9);
  box.replaceChildren(...loaded.order.map((d) => {
    const at = (loaded.code[d] - loaded.center[d]) / loaded.scale[d];
    const value = set.get(d) ?? at;
    const input = make("input", { type: "range", min: -4, max: 4, step: 0.05, value });
    input.setAttribute("aria-label", `Dimension ${d}, ${loaded.rates[d].toFixed(2)} nats`);
    const output = make("output", { textContent: value.toFixed(2) });
    const bar = make("i");
    bar.style.width = `${(100 * loaded.rates[d]) / most}%`;
    const line = make("div", { className: `dimension ${set.has(d) ? "changed" : ""}` }, make("b", { textContent: d }),
      make("span", { className: "rate", title: "Nats that this dimension costs a sentence" }, `${loaded.rates[d].toFixed(2)} nats`, bar), input, output);
    line.dataset.dimension = d;
    input.addEventListener("input", () => {
      touched = d;
      const now = changes(own.z);
      now.set(d, Number(input.value));
      own.z = [...now].map(([k, x]) => `${k}:${x}`).join(",");
      box.dataset.z = own.z;
      output.textContent = Number(input.value).toFixed(2);
      line.classList.add("changed");
      changed(40);
    });
    input.addEventListener("dblclick", () => {
      const now = changes(own.z);
      now.delete(d);
      own.z = [...now].map(([k, x]) => `${k}:${x}`).join(",");
      box.dataset.z = "";
      changed(0);
    });
    return line;
  }));
}

// State

function save() {
  const out = new URLSearchParams();
  out.set("panel", state.panel);
  for (const field of panel.fields(card)) {
    const value = state.values[panel.id][field.name];
    if (value !== "" && value !== field.value && !(field.when && !field.when(state.values[panel.id]))) out.set(field.name, value);
  }
  for (const field of WORDS) {
    const value = state.words[field.name], usual = field.value ?? field.options?.[0][0] ?? false;
    if (value !== usual) out.set(field.name, value);
  }
  if (map) {
    if (state.map !== "pca") out.set("map", state.map);
    if (state.colour !== get("colour").options[0].value) out.set("colour", state.colour);
  }
  history.replaceState(null, "", `#${out}`);
}

function restore(given) {
  const found = panels.find((p) => p.id === given.get("panel")) ?? panels[0];
  const own = (state.values[found.id] = {});
  for (const field of found.fields(card)) {
    const text = given.get(field.name);
    if (text === null) continue;
    if (field.kind === "range") own[field.name] = within(field, text);
    else own[field.name] = text.slice(0, card.limits.characters * 10);
  }
  state.words = {};
  for (const field of WORDS) {
    const text = given.get(field.name);
    if (text === null) continue;
    if (field.kind === "choice") { if (field.options.some(([value]) => value === text)) state.words[field.name] = text; }
    else if (field.kind === "check") state.words[field.name] = text === "true";
    else state.words[field.name] = within(field, text);
  }
  showWords();
  if (map) {
    state.map = given.get("map") === "tsne" ? "tsne" : "pca";
    state.colour = [...get("colour").options].find((o) => o.value === given.get("colour"))?.value ?? get("colour").options[0].value;
    placeMap();
    colourMap();
  }
  panel = null;
  switchTo(found.id);
}

const within = (field, text) => { const n = Number(text); return Number.isFinite(n) ? Math.min(field.max, Math.max(field.min, n)) : field.value ?? field.min; };

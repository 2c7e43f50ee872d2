// The moves: what each asks of the user and of the service, and how it is said on a command line and in Python.

import { command, program, python, shell, wordArguments, wordFlags, wordQuestion } from "./copy.js";

const sentence = (name, label, letter) => ({ name, kind: "sentence", label, letter });
const range = (name, label, min, max, step, value) => ({ name, kind: "range", label, min, max, step, value });
const choice = (name, label, options) => ({ name, kind: "choice", label, options });
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const file = (card) => card.corpus.file ?? "CORPUS";
const flag = (name, value, usual) => (value === usual ? [] : [name, value]);

const reconstruct = {
  id: "reconstruct",
  title: "Reconstruct",
  hint: "What a sentence's code keeps of it: the code's mean, a sample, and the mean pushed away.",
  fields: () => [sentence("s", "Sentence", "S"), range("push", "Push, in posterior standard deviations", 0, 20, 0.5, 10)],
  async run(v, words, { ask, signal }) {
    const question = { sentences: [v.s], ...wordQuestion(words) };
    const ways = [{}, { sample: true }, { perturb: v.push }];
    const [encoded, ...found] = await Promise.all([
      ask("api/encode", { sentences: [v.s] }, signal),
      ...ways.map((way) => ask("api/reconstruct", { ...question, ...way }, signal)),
    ]);
    const rows = ["mean", "sample", `pushed × ${v.push}`].map((tag, i) => ({ tag, text: found[i].sentences[0], kind: i ? "" : "main" }));
    return { rows, warnings: found[0].warnings, spots: [{ letter: "S", code: encoded.codes[0] }] };
  },
  command: (v, words, { model }) => command("reconstruct", model, ["--side-by-side", ...flag("--perturb", v.push, 10), ...wordFlags(words)], [v.s]),
  python: (v, words, { model }) => program(model,
    `sentence = ${python(v.s)}`,
    `print(space.reconstruct([sentence]${wordArguments(words)}))`,
    `print(space.reconstruct([sentence]${wordArguments(words, { sample: true })}))`,
    `print(space.reconstruct([sentence]${wordArguments(words, { perturb: v.push })}))`),
};

const interpolate = {
  id: "interpolate",
  title: "Interpolate",
  hint: "From one sentence to another through the space of codes; both ends are reconstructions.",
  fields: () => [
    sentence("a", "From", "A"), sentence("b", "To", "B"),
    range("steps", "Steps", 2, 25, 1, 7),
    choice("path", "Path", [["linear", "straight line"], ["spherical", "arc about the prior's centre"]]),
  ],
  async run(v, words, { ask, signal }) {
    const answer = await ask("api/interpolate", { start: v.a, end: v.b, steps: v.steps, path: v.path, ...wordQuestion(words) }, signal);
    const rows = answer.sentences.map((text, i) => ({
      tag: answer.at[i].toFixed(2), text, kind: i && answer.sentences[i - 1] === text ? "same" : "",
    }));
    return { rows, warnings: answer.warnings, path: answer.codes, spots: [{ letter: "A", code: answer.codes[0] }, { letter: "B", code: answer.codes.at(-1) }] };
  },
  command: (v, words, { model }) => command("interpolate", model, [...flag("--steps", v.steps, 7), ...flag("--path", v.path, "linear"), ...wordFlags(words)], [v.a, v.b]),
  python: (v, words, { model }) => program(model,
    `for sentence in space.interpolate(${python(v.a)}, ${python(v.b)}${wordArguments(words, { steps: v.steps, path: v.path })}):`, "    print(sentence)"),
};

const analogy = {
  id: "analogy",
  title: "Analogy",
  hint: "A is to B as C is to what? The sentence at C + strength × (B − A).",
  fields: () => [sentence("a", "A", "A"), sentence("b", "B, what became of A", "B"), sentence("c", "C, to change likewise", "C"), range("strength", "Strength", 0, 3, 0.1, 1)],
  async run(v, words, { ask, signal }) {
    const [answer, encoded] = await Promise.all([
      ask("api/analogy", { a: v.a, b: v.b, c: v.c, strength: v.strength, ...wordQuestion(words) }, signal),
      ask("api/encode", { sentences: [v.a, v.b, v.c] }, signal),
    ]);
    const spots = ["A", "B", "C"].map((letter, i) => ({ letter, code: encoded.codes[i] }));
    return { rows: [{ tag: "?", text: answer.sentence, kind: "main" }], warnings: answer.warnings, path: [encoded.codes[2], answer.code], spots: [...spots, { letter: "?", code: answer.code }] };
  },
  command: (v, words, { model }) => command("analogy", model, [...flag("--strength", v.strength, 1), ...wordFlags(words)], [v.a, v.b, v.c]),
  python: (v, words, { model }) => program(model, `print(space.analogy(${[v.a, v.b, v.c].map(python).join(", ")}${wordArguments(words, { strength: v.strength })}))`),
};

const TYPED = "typed"; // labels begin with =
const side = (v, name) => (v[name] === TYPED || v[name] === undefined ? { sentences: lines(v[`${name}_text`] ?? "") } : { label: v[name].slice(1) });
const sideFile = (s, card) => s.label === undefined
  ? `<(printf '%s\\n' ${s.sentences.map(shell).join(" ")})`
  : `<(awk -F '\\t' -v label=${shell(s.label)} '$1 == label {print $2}' ${shell(file(card))})`;
const sideCode = (s) => s.label === undefined
  ? `[${s.sentences.map(python).join(", ")}]`
  : `[line.text for line in lines if line.label == ${python(s.label)}]`;

const edit = {
  id: "edit",
  title: "Edit",
  hint: "Move a sentence along the direction between the mean codes of two groups of sentences.",
  fields(card) {
    const labels = card.corpus?.labels ?? [];
    const options = [...labels.map(({ name, count }) => [`=${name}`, `${name} (${count.toLocaleString("en")} sentences)`]), [TYPED, "sentences typed here"]];
    const group = (name, label, place) => [
      { ...choice(name, label, options), value: options[Math.min(place, options.length - 1)][0] },
      { name: `${name}_text`, kind: "lines", label: "One sentence a line", when: (v) => v[name] === TYPED },
    ];
    return [sentence("s", "Sentence", "S"), ...group("add", "Towards", 0), ...group("less", "Away from", 1), range("strength", "Strength", -5, 5, 0.1, 1)];
  },
  ready: (v) => v.s && ["add", "less"].every((name) => side(v, name).label !== undefined || side(v, name).sentences.length),
  async run(v, words, { ask, signal }) {
    const answer = await ask("api/edit", { sentences: [v.s], add: side(v, "add"), subtract: side(v, "less"), strength: v.strength, ...wordQuestion(words) }, signal);
    const rows = [{ tag: "as it is", text: answer.reconstructions[0] }, { tag: "edited", text: answer.sentences[0], kind: "main" }];
    const note = `The direction has length ${answer.norm.toFixed(2)}.`;
    return { rows, note, warnings: answer.warnings };
  },
  command: (v, words, { model, card }) => command("edit", model, ["--add", sideFile(side(v, "add"), card), "--subtract", sideFile(side(v, "less"), card), ...flag("--strength", v.strength, 1), ...wordFlags(words)], [v.s]),
  python(v, words, { model, card }) {
    const sides = [side(v, "add"), side(v, "less")];
    const reading = sides.some((s) => s.label !== undefined)
      ? ["from zentence.corpora import read_sentences", `lines = list(read_sentences(${python(file(card))}))`] : [];
    if (reading.length && card.corpus.points < card.corpus.sentences) reading.push(`# the page has ${card.corpus.points} of these ${card.corpus.sentences} sentences`);
    return program(model, ...reading, `direction = space.direction(${sides.map(sideCode).join(", ")})`,
      `print(space.edit([${python(v.s)}], direction${wordArguments(words, { strength: v.strength })}))`);
  },
};

const changes = (text) => new Map((text ?? "").split(",").filter(Boolean).map((pair) => pair.split(":").map(Number)));

const dimensions = {
  id: "dimensions",
  title: "Dimensions",
  hint: "A sentence's code, one slider a dimension, the most informative first; unit: the prior's standard deviation.",
  fields: () => [sentence("s", "Sentence", "S"), { name: "z", kind: "dimensions", value: "" }],
  ready: (v) => v.s,
  async load(v, { ask, signal, card }) {
    const where = card.corpus ? "api/dimensions" : `api/dimensions?sentence=${encodeURIComponent(v.s)}`;
    const [order, encoded] = await Promise.all([ask(where, undefined, signal), ask("api/encode", { sentences: [v.s] }, signal)]);
    return { ...order, code: encoded.codes[0], warnings: encoded.warnings };
  },
  async run(v, words, { ask, signal, loaded, touched }) {
    const code = [...loaded.code], changed = changes(v.z);
    for (const [d, at] of changed) if (d in code) code[d] = loaded.center[d] + at * loaded.scale[d];
    const along = touched ?? loaded.order[0];
    const [written, own, walked] = await Promise.all([
      ask("api/decode", { codes: [code], ...wordQuestion(words) }, signal),
      ask("api/decode", { codes: [loaded.code], ...wordQuestion(words) }, signal),
      ask("api/traverse", { code: loaded.code, dimensions: [along], ...wordQuestion(words) }, signal),
    ]);
    const [walk] = walked.dimensions;
    const rows = [{ tag: "as it is", text: own.sentences[0] }, { tag: "changed", text: written.sentences[0], kind: "main" },
      { heading: `Along dimension ${along} alone (the sentence is at ${signed(walk.own)})` },
      ...walk.sentences.map((text, i) => ({ tag: signed(walk.at[i]), text, kind: i && walk.sentences[i - 1] === text ? "same" : "" }))];
    return { rows, warnings: loaded.warnings, path: [loaded.code, code], spots: [{ letter: "S", code: loaded.code }, ...(changed.size ? [{ letter: "∗", code }] : [])] };
  },
  command: (v, words, { model, loaded, touched, card }) => command("traverse", model, [
    ...flag("--dimensions", loaded ? loaded.order.indexOf(touched ?? loaded.order[0]) + 1 : 5, 5),
    ...(card.corpus?.file ? ["--rates", shell(card.corpus.file)] : []), ...wordFlags(words)], [v.s]),
  python: (v, words, { model }) => program(model, `code = space.encode(${python(v.s)})`, "center, scale = space.prior_moments()",
    ...[...changes(v.z)].map(([d, at]) => `code[${d}] = center[${d}] + ${at} * scale[${d}]`), `print(space.decode(code[None]${wordArguments(words)}))`),
};

const neighbours = {
  id: "neighbours",
  title: "Neighbours",
  hint: "The sentences of the corpus whose codes are nearest.",
  words: false,
  fields: () => [sentence("s", "Sentence", "S"), range("k", "How many", 1, 50, 1, 10), choice("metric", "Near by", [["euclidean", "distance"], ["cosine", "angle (cosine)"]])],
  async run(v, words, { ask, signal }) {
    const [answer, encoded] = await Promise.all([
      ask("api/neighbours", { sentence: v.s, k: v.k, metric: v.metric }, signal),
      ask("api/encode", { sentences: [v.s] }, signal),
    ]);
    const name = v.metric === "cosine" ? "cosine" : "distance";
    return { rows: answer.neighbours.map((hit) => ({ tag: hit[name].toFixed(3), text: hit.sentence, point: hit.id })), warnings: answer.warnings, spots: [{ letter: "S", code: encoded.codes[0] }] };
  },
  command: (v, words, { model, card }) => [
    command("index", model, ["--file", shell(file(card)), "--out", "codes.index"]),
    command("neighbours", model, ["--index", "codes.index", ...flag("-k", v.k, 10), ...flag("--metric", v.metric, "euclidean")], [v.s]),
  ].join("\n"),
  python: (v, words, { model, card }) => program(model, "from zentence.latent.neighbours import Index",
    `index = Index.build(space, ${python(file(card))}, "codes.index")`,
    `[numbers], [scores] = index.search(space.encode([${python(v.s)}]), ${v.k}, metric=${python(v.metric)})`,
    "for number, score in zip(numbers, scores):", "    print(round(score, 3), index.sentence(int(number)))"),
};

const sample = {
  id: "sample",
  title: "Sample",
  hint: "New sentences, from codes drawn from the prior.",
  fields: (card) => [range("n", "How many", 1, 50, 1, 10), ...(card.has_code ? [range("scale", "Spread of the codes (1: the prior)", 0, 3, 0.05, 1)] : [])],
  ready: () => true,
  async run(v, words, { ask, signal, card }) {
    const answer = await ask("api/sample", { count: v.n, ...(card.has_code ? { scale: v.scale } : {}), ...wordQuestion(words) }, signal);
    return { rows: answer.sentences.map((text, i) => ({ tag: String(i + 1), text })), warnings: answer.warnings };
  },
  command: (v, words, { model }) => command("sample", model, [...flag("-n", v.n, 10), ...flag("--scale", v.scale ?? 1, 1), ...wordFlags(words)]),
  python: (v, words, { model }) => program(model, `for sentence in space.sample(${v.n}${wordArguments(words, (v.scale ?? 1) === 1 ? {} : { scale: v.scale })}):`, "    print(sentence)"),
};

// A language model only samples; without a corpus there are no neighbours.
export const panelsFor = (card) => !card.has_code ? [sample]
  : [reconstruct, interpolate, analogy, edit, dimensions, ...(card.corpus ? [neighbours] : []), sample];

export const WORDS = [
  choice("method", "Method", [["greedy", "greedy"], ["sample", "sample"], ["beam", "beam search"]]),
  { ...range("temperature", "Temperature", 0.1, 2, 0.05, 1), method: "sample" },
  { ...range("top_p", "Nucleus (top p)", 0.05, 1, 0.05, 1), method: "sample" },
  { ...range("beam", "Beam", 1, 10, 1, 5), method: "beam" },
  range("max_words", "Longest, words", 5, 200, 5, 100),
  { name: "forbid_unknown", kind: "check", label: "Never write <unk>" },
  { name: "seed", kind: "number", label: "Seed", min: 0, max: 2147483647, value: 0, again: true },
];
export { changes };

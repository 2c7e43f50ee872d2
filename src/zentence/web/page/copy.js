// Results as text, as a command and as Python: what is shown can be had again without the page.

export const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
export const python = (text) => JSON.stringify(text);

// Options come first: a sentence that begins with a dash then needs only the two dashes before it.
export function command(name, model, options, sentences = []) {
  const words = ["zentence", name, shell(model), ...options];
  if (sentences.some((text) => text.startsWith("-"))) words.push("--");
  return [...words, ...sentences.map(shell)].join(" ");
}

export function wordFlags(words) {
  const flags = [];
  if (words.method !== "greedy") flags.push("--method", words.method);
  if (words.method === "sample" && words.temperature !== 1) flags.push("--temperature", words.temperature);
  if (words.method === "sample" && words.top_p !== 1) flags.push("--top-p", words.top_p);
  if (words.method === "beam" && words.beam !== 5) flags.push("--beam", words.beam);
  if (words.max_words !== 100) flags.push("--max-words", words.max_words);
  if (words.forbid_unknown) flags.push("--forbid-unk");
  if (words.seed !== 0) flags.push("--seed", words.seed);
  return flags;
}

export function wordQuestion(words) {
  const question = { method: words.method, max_words: words.max_words, seed: words.seed };
  if (words.method === "sample") {
    question.temperature = words.temperature;
    if (words.top_p !== 1) question.top_p = words.top_p;
  }
  if (words.method === "beam") question.beam = words.beam;
  if (words.forbid_unknown) question.forbid_unknown = true;
  return question;
}

export function wordArguments(words, given = {}) {
  const all = { ...given }, question = wordQuestion(words);
  if (question.method !== "greedy") all.method = question.method;
  if (question.temperature !== undefined && question.temperature !== 1) all.temperature = question.temperature;
  if (question.top_p !== undefined) all.top_p = question.top_p;
  if (question.beam !== undefined && question.beam !== 5) all.beam = question.beam;
  if (question.max_words !== 100) all.max_words = question.max_words;
  if (question.forbid_unknown) all.forbid_unknown = true;
  if (question.seed !== 0) all.seed = question.seed;
  return Object.entries(all).map(([name, value]) => `, ${name}=${literal(value)}`).join("");
}

function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  return typeof value === "string" ? python(value) : String(value);
}

export const program = (model, ...lines) =>
  ["from zentence import LatentSpace", "", `space = LatentSpace.load(${python(model)})`, ...lines].join("\n");

export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // no permission, or an address that browsers do not trust with it
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

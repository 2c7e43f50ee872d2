// Talks to the service; the token, if there is one, comes with the address and stays out of it afterwards.

let token = null;
try { token = sessionStorage.getItem("token"); } catch { /* storage may be switched off */ }

export function takeToken(parameters) {
  if (!parameters.has("token")) return;
  token = parameters.get("token");
  parameters.delete("token");
  try { sessionStorage.setItem("token", token); } catch { /* kept for this page only */ }
}

export class Refused extends Error {}

export async function ask(path, question, signal) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = { headers, signal };
  if (question !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(question);
    headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service does not answer: is it still running?");
  }
  if (answer.status === 401) {
    token = await askForToken();
    return ask(path, question, signal);
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(content?.detail ?? `The service answered ${answer.status}`);
  return content;
}

let asking = null;
function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask"), input = document.getElementById("token");
    dialog.addEventListener("close", () => {
      asking = null;
      try { sessionStorage.setItem("token", input.value); } catch { /* kept for this page only */ }
      resolve(input.value);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// Asks again and again until something that is worked out in the background is there.
export async function later(path, told) {
  for (;;) {
    const answer = await ask(path);
    told(answer);
    if (answer.status !== "running") return answer;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

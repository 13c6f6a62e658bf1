// Trade the token in the address for a cookie, and drop it from the address before anything else happens.
const api = new URL("../../api/v1/", import.meta.url);
const status = document.getElementById("status");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname);

const headers = { "Content-Type": "application/json", "X-Pausepoint": "1" };

async function signIn() {
  if (token) {
    await fetch(new URL("login", api), { method: "POST", headers, body: JSON.stringify({ token }) });
  }
  const answer = await fetch(new URL("me", api));
  const said = await answer.json();
  status.textContent = answer.ok ? `Signed in as ${said.name} (${said.role}).` : said.detail;
}

signIn().catch(() => { status.textContent = "The server does not answer. Start it again, then reload this page."; });

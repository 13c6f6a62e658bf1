// Requests to the server. The address of this module tells where the server is, so the page can be mounted anywhere.
const API = new URL('../../api/v1/', import.meta.url);
const GONE = 'The server does not answer. Start it again with pausepoint serve; this page then continues.';

// The address of the page, as this person reaches it.
export const HERE = new URL('../../', import.meta.url).href;

export const of = (session_id) => `/sessions/${encodeURIComponent(session_id)}`;

// Empty members of the query are left out.
export function address(path, query = {}) {
  const url = new URL('.' + path, API);
  for (const [name, value] of Object.entries(query)) if ((value ?? '') !== '') url.searchParams.set(name, value);
  return url;
}

// A sentence for programs: "List the sessions with GET /sessions." On the page there are links and buttons.
const REQUEST = / [A-Z][^.,]*\b(GET|POST) \/.*?\.(?= |$)|, or [^.,]*\bPOST \/.*?(?=\.( |$))/g;

// A refusal by the server, or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail?.replace(REQUEST, '') || 'The request failed. Try it again.');
    Object.assign(this, body, { status });
  }
}

async function request(url, options, read = 'json') {
  const answer = await fetch(url, options).catch(() => { throw new Problem(0, { detail: GONE }); });
  if (answer.ok) return answer.status === 204 ? null : answer[read]();
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

export const get = (path, query) => request(address(path, query));
export const content = (path, query) => request(address(path, query), {}, 'text');

// The server's answer to the same key is the same, so a request that is sent twice has one effect.
const acting = () => ({ 'x-pausepoint': '1', 'idempotency-key': crypto.getRandomValues(new Uint32Array(4)).join('-') });

// A request that got no answer is sent once more with the same key.
export async function act(method, path, body = {}, headers = {}) {
  const options = { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json', ...acting(), ...headers } };
  const send = () => request(address(path), options);
  return send().catch(async (problem) => {
    if (problem.status !== 0) throw problem;
    await new Promise((done) => setTimeout(done, 1000));
    return send();
  });
}

export const post = (path, body, headers) => act('POST', path, body, headers);

export const upload = (path, file, query = { filename: file.name, content_type: file.type }) =>
  request(address(path, query), { method: 'POST', body: file, headers: acting() });

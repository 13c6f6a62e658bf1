// Requests to the server. The address of this module tells where the server is, so the page can be mounted anywhere.
const API = new URL('../../api/v1/', import.meta.url);

export const address = (path) => new URL(path.replace(/^\//, ''), API);

// A refusal by the server, or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || 'The request failed. Try it again.');
    Object.assign(this, body, { status });
  }
}

const GONE = 'The server does not answer. Start it again with pausepoint serve; this page then continues.';

async function request(path, options, read = (answer) => answer.json()) {
  let answer;
  try {
    answer = await fetch(address(path), { credentials: 'same-origin', ...options });
  } catch {
    throw new Problem(0, { detail: GONE });
  }
  if (answer.ok) return answer.status === 204 ? null : read(answer);
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

// Read. Empty members of the query are left out.
export const get = (path, query) => request(path + asked(query), { headers: { accept: 'application/json' } });

// Read a file as text.
export const content = (path, query) => request(path + asked(query), {}, (answer) => answer.text());

function asked(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return given.length ? '?' + new URLSearchParams(given) : '';
}

// The server's answer to the same key is the same, so a click that is sent twice has one effect.
function key() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Act. A request that got no answer is sent once more with the same key.
export async function act(method, path, body = {}, headers = {}) {
  const options = {
    method, body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', 'x-pausepoint': '1', 'idempotency-key': key(), ...headers },
  };
  try {
    return await request(path, options);
  } catch (problem) {
    if (problem.status !== 0) throw problem;
    await new Promise((done) => setTimeout(done, 1000));
    return request(path, options);
  }
}

export const post = (path, body, headers) => act('POST', path, body, headers);

// Upload a file as it is.
export function upload(path, file) {
  const query = new URLSearchParams({ filename: file.name, ...(file.type ? { content_type: file.type } : {}) });
  return request(`${path}?${query}`, {
    method: 'POST', body: file, headers: { 'x-pausepoint': '1', 'idempotency-key': key() },
  });
}

export const of = (session_id) => `/sessions/${encodeURIComponent(session_id)}`;

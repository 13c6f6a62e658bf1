// A visitor of a site: the signed link in the address, and requests to the site's API. Pages import it from './visitor.js'.

const API = new URL('api', new URL('.', location.href)).href;

export const get = (path) => fetch(API + path);

export const post = (path, body) => fetch(API + path, {
  method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Pausepoint': '1' }, body: JSON.stringify(body),
});

export const stream = (path) => new EventSource(API + path);

// Trade the link in the address for a cookie, and return the answer of the server. Without a link it returns null.
export async function signIn() {
  const link = new URLSearchParams(location.hash.slice(1)).get('link');
  history.replaceState(null, '', location.pathname);  // the link stays in no history
  return link === null ? null : post('/login', { link });
}

addEventListener('hashchange', () => { if (location.hash.includes('link=')) location.reload(); });

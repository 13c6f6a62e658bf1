// The frame: addresses, loading, live updates, keys. A screen is a function of what was loaded.
//
// A screen is a module with `load(route)`, which returns its data, and `view(data, page)`, which draws it. It may have
// `topics(route, data)` for the stream, `live(name, data, page)` for events that it draws without loading again, `title(route)`
// and `keys` (a map from a key to what it does).
import { render, html, nothing } from './vendor/lit-html.js';
import { get, post, Problem } from './api.js';
import { Live } from './live.js';
import { icon } from './shapes.js';
import { tell } from './toast.js';
import { dialog, keysDialog, opened } from './dialog.js';
import * as now from './now.js';
import * as inbox from './inbox.js';
import * as sessions from './sessions.js';
import * as session from './session.js';
import * as agents from './agents.js';
import * as store from './store.js';

const SCREENS = { '': now, inbox, sessions, agents, store };
const ROLES = ['viewer', 'answerer', 'operator', 'admin'];
const QUIET = 250;  // milliseconds in which changes are collected before the screen loads again

class Page {
  constructor() {
    this.root = document.getElementById('app');
    this.root.replaceChildren();  // the text that is shown while this file loads
    this.route = null;
    this.data = null;
    this.error = null;
    this.me = null;
    this.now = null;  // the facts of `GET /now`, for the numbers in the navigation
    this.isLinked = true;
    this.dialog = null;
    this.row = -1;
  }

  // Whether the signed-in person may do what needs a role.
  may(role) {
    if (!this.me) return false;
    return this.me.role === 'answerer' ? role === 'answerer' : ROLES.indexOf(this.me.role) >= ROLES.indexOf(role);
  }

  get screen() {
    const { path } = this.route;
    return path[0] === 'sessions' && path[1] ? session : SCREENS[path[0] ?? ''];
  }

  async begin() {
    const token = new URLSearchParams(location.hash.slice(1)).get('token');
    if (token) history.replaceState(null, '', location.pathname + location.search + '#/');
    try {
      this.me = token ? await post('/login', { token }) : await get('/me');
    } catch (problem) {
      this.error = problem;
    }
    if (this.me?.question) history.replaceState(null, '', `#/inbox/${encodeURIComponent(this.me.question)}`);
    else if (this.me?.role === 'answerer' && !location.hash.startsWith('#/inbox')) history.replaceState(null, '', '#/inbox');
    this.route = route();
    this.live = new Live((name, data) => this.heard(name, data), (linked) => this.link(linked));
    await this.load();
  }

  // Load what the screen shows, then draw it. An older load that ends later is dropped.
  async load() {
    const { route, screen } = this;
    if (this.error?.status === 401) return this.draw();
    if (!screen) return this.fail(new Problem(404, { detail: 'There is no such page. Choose one on the left.' }));
    try {
      const [data, now] = await Promise.all([screen.load(route, this), this.may('viewer') ? get('/now') : null]);
      if (route !== this.route) return;
      Object.assign(this, { data, now, error: null });
      const topics = ['now', ...(screen.topics?.(route, data) ?? [])];
      this.live.follow(this.may('viewer') ? topics.filter((topic) => topic !== 'inbox' || this.may('answerer')) : topics.slice(1));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (route === this.route) this.fail(error);
      return;
    }
    this.draw();
  }

  fail(error) {
    if (error.status === 0 && this.data) this.isLinked = false;  // keep what is shown
    else this.error = error;
    this.draw();
  }

  draw() {
    render(frame(this), this.root);
    const open = document.querySelector('dialog');
    if (open && this.dialog && !open.open) open.showModal();
    const waiting = this.now?.questions;
    document.title = `${waiting ? `(${waiting}) ` : ''}${this.screen?.title?.(this.route) ?? 'Pausepoint'} · Pausepoint`;
  }

  // Many events come at once; they are drawn together.
  drawSoon() { this.soon ??= requestAnimationFrame(() => { this.soon = null; this.draw(); }); }

  go(hash, replace = false) {
    if (replace) {
      history.replaceState(null, '', hash);
      this.moved();
    } else location.hash = hash;
  }

  async moved() {
    const former = this.route;
    this.route = route();
    const same = former && former.path.join('/') === this.route.path.join('/');
    if (!same) Object.assign(this, { data: null, row: -1, dialog: null });
    if (this.error?.status !== 401) this.error = null;
    await this.load();
    if (!same) document.getElementById('main')?.focus();
  }

  // An event of the stream. It only says what to read again, unless the screen draws it itself.
  heard(name, data) {
    if (this.screen?.live?.(name, data, this)) return this.drawSoon();
    this.due ??= setTimeout(() => { this.due = null; if (!document.hidden) this.load(); }, QUIET);
  }

  link(linked) {
    if (linked && !this.isLinked) this.load();
    this.isLinked = linked;
    this.draw();
  }

  // Do something, say so, and load again. Returns the answer; undefined if it was refused.
  async act(verb, said) {
    try {
      const found = await verb();
      tell(typeof said === 'function' ? said(found) : said);
      await this.load();
      return found ?? null;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      tell(problem.message, true);
      await this.load();
      return undefined;
    }
  }

  ask(dialog) { this.dialog = dialog; this.draw(); opened(this); }

  closeDialog() {
    document.querySelector('dialog')?.close();
    this.dialog = null;
    this.draw();
  }
}

// The address after "#": /sessions/octopus?tab=state.
function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

// frame

function link(page, name, count, hot) {
  const here = (page.route.path[0] ?? 'now') === name;
  return html`<a class="to" href="#/${name === 'now' ? '' : name}" aria-current=${here ? 'page' : nothing}>${icon(name)}${name[0].toUpperCase() + name.slice(1)}${count ? html`<span class="count ${hot}">${count}<span class="unseen"> ${hot === 'hot' ? 'open' : 'failed'}</span></span>` : nothing}</a>`;
}

function failures(now) {
  return Object.values(now?.counts ?? {}).reduce((sum, each) => sum + (each.failed ?? 0), 0);
}

function frame(page) {
  if (page.error?.status === 401) return html`<main id="main" class="alone" tabindex="-1">${signIn(page)}</main>`;
  const sees = page.may('viewer');
  return html`<div class="frame">
    <nav class="side" aria-label="Pages">
      <a class="brand" href="#/"><img src=${new URL('icon.svg', import.meta.url).href} alt="">Pausepoint</a>
      ${sees ? link(page, 'now') : nothing}
      ${page.may('answerer') ? link(page, 'inbox', page.now?.questions, 'hot') : nothing}
      ${sees ? html`${link(page, 'sessions', failures(page.now), 'bad')}${link(page, 'agents')}${link(page, 'store')}` : nothing}
      ${foot(page)}
    </nav>
    <main id="main" tabindex="-1">${offline(page)}${page.error ? failure(page.error) : page.data ? page.screen.view(page.data, page) : html`<p class="empty" aria-busy="true">Loading…</p>`}</main>
  </div>
  ${page.dialog ? dialog(page) : nothing}`;
}

const foot = (page) => html`<div class="foot">
  <span class="link ${page.isLinked ? '' : 'off'}"><i></i>${page.isLinked ? 'live' : 'connecting…'}</span>
  <span class="clip" title="${page.me?.name} (${page.me?.role})">${page.me?.name} · ${page.me?.role}</span>
  <span class="row"><button class="b tiny quiet" @click=${theme}>Light or dark</button><button class="b tiny quiet" @click=${() => page.ask(keysDialog(page))}>Keys <kbd>?</kbd></button></span>
  <button class="b tiny quiet" @click=${() => signOut(page)}>Sign out</button>
</div>`;

const offline = (page) => page.isLinked ? nothing : html`<div class="note" role="status"><p>The server does not answer. The page shows what it knew last, and continues when the server is back.</p></div>`;

const failure = (error) => html`<div class="top"><h1>${error.status === 404 ? 'There is nothing here' : error.status === 410 ? 'It is gone' : 'This did not work'}</h1></div>
  <div class="note bad" role="alert"><p>${error.message}</p></div><p class="back"><a class="b" href="#/">Back to Now</a></p>`;

function signIn(page) {
  const send = async (event) => {
    event.preventDefault();
    try {
      await post('/login', { token: event.target.elements.token.value.trim() });
      location.reload();
    } catch (problem) {
      page.error = new Problem(401, { detail: problem.message });
      page.draw();
    }
  };
  return html`<h1>Sign in</h1><p class="dim">Open the address that <code>pausepoint serve</code> printed; it signs you in. Or enter a token, such as the one in the file <code>serve-token</code> next to the store.</p>
    <div class="note bad" role="alert"><p>${page.error.message}</p></div>
    <form class="f" @submit=${send}><div class="field"><label for="token">Token</label><input class="in mono" id="token" name="token" type="password" autocomplete="current-password" required></div><div><button class="b main">Sign in</button></div></form>`;
}

async function signOut(page) {
  await post('/logout').catch(() => null);
  page.error = new Problem(401, { detail: 'You are signed out.' });
  page.draw();
}

// themes

const THEMES = ['', 'light', 'dark'];
function theme() {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? '') + 1) % THEMES.length];
  document.documentElement.dataset.theme = next;
  localStorage.setItem('pausepoint.theme', next);
  tell(next ? `The page is ${next}.` : 'The page follows your system.');
}
document.documentElement.dataset.theme = localStorage.getItem('pausepoint.theme') ?? '';

// keys

const page = new Page();
const GO = { n: '#/', i: '#/inbox', s: '#/sessions', a: '#/agents', d: '#/store' };
let went = 0;

function step(by) {
  const rows = [...document.querySelectorAll('[data-row]')];
  if (!rows.length) return;
  page.row = Math.max(0, Math.min(rows.length - 1, page.row + by));
  rows.forEach((row, n) => row.classList.toggle('at', n === page.row));
  const row = rows[page.row];
  (row.matches('a, button, [tabindex]') ? row : row.querySelector('a, button, input'))?.focus();
  row.scrollIntoView({ block: 'nearest' });
}

function pressed(key) {
  if (Date.now() - went < 900) {
    went = 0;
    return GO[key] ? (page.go(GO[key]), true) : false;
  }
  if (key === 'g') return (went = Date.now(), true);
  if (key === 'j' || key === 'k') return (step(key === 'j' ? 1 : -1), true);
  if (key === '?') return (page.ask(keysDialog(page)), true);
  if (key === '/') {
    const field = document.querySelector('[role=search] input');
    field ? field.focus() : page.go('#/sessions');
    return true;
  }
  const own = page.screen?.keys?.[key];
  return own && page.data ? (own(page), true) : false;
}

document.addEventListener('keydown', (event) => {
  if (event.target.closest('input, textarea, select, dialog') || event.metaKey || event.ctrlKey || event.altKey) return;
  if (pressed(event.key)) event.preventDefault();
});
document.addEventListener('visibilitychange', () => { if (!document.hidden && page.route) page.load(); });
addEventListener('hashchange', () => page.moved());
setInterval(() => { if (!document.hidden && page.data && !page.dialog) page.draw(); }, 15_000);  // times such as "2 min ago"

page.begin();

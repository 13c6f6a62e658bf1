// The frame: addresses, loading, live updates, keys. A screen is a function of what was loaded.
//
// A screen is a module with `load(route, page)`, which returns its data, `view(data, page)`, which draws it, and `title(route)`. It may
// have `topics(route, data)` for the stream, `live(name, data, page)` for events that it draws without loading again, and `keys`.
import { render, nothing } from './vendor/lit-html.js';
import { html, marked } from './marks.js';
import { get, post, Problem } from './api.js';
import { Live } from './live.js';
import { icon } from './shapes.js';
import { tell } from './toast.js';
import { total } from './words.js';
import { dialog, keysDialog, opened } from './dialog.js';
import * as now from './now.js';
import * as inbox from './inbox.js';
import * as sessions from './sessions.js';
import * as session from './session.js';
import * as agents from './agents.js';
import * as store from './store.js';
import * as start from './start.js';
import * as compare from './compare.js';

const SCREENS = { now, inbox, sessions, agents, store, start, compare };
const ROLES = ['viewer', 'answerer', 'operator', 'admin'];
const QUIET = 1000, AGAIN = 5000;  // milliseconds in which changes are collected, and until a lost server is asked again

const find = (selector) => document.querySelector(selector);

// The address after "#": /sessions/octopus?tab=state.
function route() {
  const [path, query] = location.hash.slice(1).split('?');
  return { path: path.split('/').filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;  // it leads nowhere, and the server says so
  }
}

class Page {
  isLinked = true;
  row = -1;  // chosen with j and k
  begun = 0;  // loads that began, and the last of them that was drawn
  drawn = 0;

  may(role) {
    const mine = this.me?.role;
    return mine === 'answerer' ? role === mine : ROLES.indexOf(mine) >= ROLES.indexOf(role);
  }

  get screen() {
    const [name = this.may('viewer') ? 'now' : 'inbox', id] = this.route.path;
    return name === 'sessions' && id ? session : SCREENS[name];
  }

  async begin() {
    const token = new URLSearchParams(location.hash.slice(1)).get('token');
    if (token) history.replaceState(null, '', '#/');
    try {
      this.me = await (token ? post('/login', { token }) : get('/me'));
    } catch (problem) {
      this.error = problem;
    }
    this.live = new Live(this);
    find('#app').replaceChildren();  // the text that is shown while this file loads
    await this.moved();
  }

  // An older load that ends later is dropped, and so is one for an address that was left.
  async load() {
    const { route, screen } = this, sees = this.may('viewer'), number = ++this.begun;
    const isOld = () => route !== this.route || number < this.drawn;
    try {
      if (!this.me) throw this.error;
      if (!screen) throw new Problem(404, { detail: 'There is no such page. Choose one on the left.' });
      const [data, now] = await Promise.all([screen.load(route, this), sees && get('/now')]);
      if (isOld()) return;
      Object.assign(this, { data, now, error: null, trouble: null, missing: null, drawn: number });
      const topics = ['now', ...screen.topics?.(route, data) ?? []];
      this.live.follow(sees ? topics.filter((topic) => topic !== 'inbox' || this.may('answerer')) : topics.slice(1));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (isOld()) return;
      const passes = !error.status || error.status === 429 || error.status >= 500;
      if (error.status === 401) this.me = null;
      if (error.status === 404) this.missing = route;
      if (passes && this.data) this.trouble = error;  // what is shown and typed stays
      else this.error = error;
      clearTimeout(this.again);
      if (passes) this.again = setTimeout(() => this.load(), AGAIN);
    }
    this.loaded = Date.now();
    this.draw();
  }

  // Load again after news. What does not exist is not asked for with every change of something else.
  refresh() { if (!document.hidden && this.missing !== this.route) this.load(); }

  draw() {
    render(frame(this), find('#app'));
    if (this.dialog) find('dialog:not([open])')?.showModal();
    document.title = marked(`${this.now?.questions ? `(${this.now.questions}) ` : ''}${this.screen?.title(this.route) ?? 'Nothing'} · Pausepoint`);
  }

  drawSoon() { this.soon ??= requestAnimationFrame(() => { this.soon = null; this.draw(); }); }

  go(hash, replace = false) {
    if (!replace) location.hash = hash;
    else { history.replaceState(null, '', hash); this.moved(); }
  }

  async moved() {
    const former = this.route?.path.join('/');
    this.route = route();
    if (former === this.route.path.join('/')) return this.load();
    Object.assign(this, { data: null, error: this.me ? null : this.error, trouble: null, row: -1, dialog: null });
    if (this.me) this.draw();  // nothing of the former screen can be pressed while this one loads
    await this.load();
    if (former !== undefined) find('main').focus();
  }

  // An event of the stream. It only says what to read again, unless the screen draws it itself.
  heard(name, data) {
    if (this.screen?.live?.(name, data, this)) return this.drawSoon();
    this.due ??= setTimeout(() => { this.due = null; this.refresh(); }, this.loaded + QUIET > Date.now() ? QUIET : QUIET / 4);
  }

  link(isLinked) {
    if (isLinked && !this.isLinked) this.load();
    this.isLinked = isLinked;
    this.draw();
  }

  // Do something, say so, and load again. Returns the answer; undefined if it was refused.
  async act(verb, said) {
    let found;
    try {
      found = await verb() ?? null;
      tell(said.call ? said(found) : said);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      tell(problem.message, true);
    }
    await this.load();
    return found;
  }

  ask(dialog) { this.dialog = dialog; this.draw(); opened(this); }

  closeDialog() {
    find('dialog')?.close();
    this.dialog = null;
    this.draw();
  }
}

// frame

function link(page, name, count, tone) {
  if (!page.may(name === 'inbox' ? 'answerer' : 'viewer')) return '';
  return html`<a class="to" href="#/${name === 'now' ? '' : name}" aria-current=${page.screen === SCREENS[name] ||
    page.route.path[0] === name ? 'page' : nothing}>${icon(name)}${SCREENS[name].title(page.route)}${count ?
    html`<span class="count pill ${tone}">${count}<span class="unseen"> ${tone}</span></span>` : ''}</a>`;
}

const frame = (page) => page.me ? html`<div class="frame">
  <nav class="side" aria-label="Pages"><a class="brand" href="#/"><img src=${new URL('icon.svg', import.meta.url)} width="24" alt="">Pausepoint</a>
    ${link(page, 'now')}${link(page, 'inbox', page.now?.questions, 'waiting')}
    ${link(page, 'sessions', total(page.now?.failures), 'failed')}
    ${link(page, 'agents')}${link(page, 'store')}</nav>
  <main id="main" tabindex="-1">${page.isLinked ? page.trouble ? trouble(page.trouble) : '' : OFFLINE}${page.error ? failure(page.error) : page.data ? page.screen.view(page.data, page) :
    html`<p class="empty" aria-busy="true">Loading…</p>`}</main><footer class="foot small dim"><span class="st ${page.isLinked ? 'completed' : 'paused'}">● ${page.isLinked ? 'live' : 'connecting…'}</span>
      <div class="clip">${page.me.name} · ${page.me.role}</div><button class="b tiny quiet" @click=${KEYS['?']}>Keys <kbd>?</kbd></button>
      <button class="b tiny quiet" @click=${() => post('/logout').finally(() => location.reload())}>Sign out</button></footer></div>${page.dialog ? dialog(page) : ''}` : signIn(page);

const OFFLINE = html`<p class="note" role="status">The server does not answer. This page continues when it is back.</p>`;

const trouble = ({ message }) => html`<p class="note" role="alert">This page could not be read again, so it may be out of date: ${message}</p>`;

const failure = ({ status, message }) => html`<div class="top"><h1>${status === 404 ? 'There is nothing here' : 'This did not work'}</h1></div>
  <p class="note bad" role="alert">${message}</p><a class="b" href="#/">Start page</a>`;

function signIn(page) {
  const send = (event) => {
    event.preventDefault();
    post('/login', { token: event.target.token.value.trim() }).then(() => location.reload(), (problem) => { page.error = problem; page.draw(); });
  };
  return html`<main id="main" class="alone stack" tabindex="-1"><h1>Sign in</h1><p>Open the address that <code>pausepoint serve</code> printed,
    or enter a token, such as the one in the file <code>serve-token</code> next to the store.</p><p class="note bad" role="alert">${page.error.message}</p>
    <form class="f" @submit=${send}><label class="field">Token<input class="in" name="token" type="password" autocomplete="current-password" required></label>
      <div><button class="b main">Sign in</button></div></form></main>`;
}

// keys

const page = new Page();
const GO = { n: '#/', i: '#/inbox', s: '#/sessions', a: '#/agents', d: '#/store' };
const KEYS = {
  g: () => { went = Date.now(); }, j: () => step(1), k: () => step(-1), '?': () => page.ask(keysDialog()),
  '/': () => { const field = find('[role=search] input'); field ? field.focus() : page.go(GO.s); },
};
let went = 0;  // when g was pressed

function step(by) {
  const rows = [...document.querySelectorAll('[data-row]')], at = Math.max(0, Math.min(rows.length - 1, page.row + by)), row = rows[at];
  page.row = at;
  rows.forEach((each) => each.classList.toggle('at', each === row));
  (row?.matches('a, button, [tabindex]') ? row : row?.querySelector('a, button'))?.focus();
}

document.addEventListener('keydown', (event) => {
  if (event.target.closest('input, textarea, select, dialog') || event.metaKey || event.ctrlKey || event.altKey) return;
  const { key } = event, isSecond = Date.now() - went < 900;
  went = 0;
  const does = isSecond ? GO[key] && (() => page.go(GO[key])) : KEYS[key] ?? (page.data && page.screen.keys?.[key]);
  if (!does) return;
  event.preventDefault();
  does(page);
});
document.addEventListener('visibilitychange', () => { if (!document.hidden && page.route) page.load(); });
addEventListener('resize', () => { if (page.data) page.drawSoon(); });
addEventListener('hashchange', () => location.hash.startsWith('#token=') ? location.reload() : page.moved());
setInterval(() => { if (!document.hidden && page.data && !page.dialog) page.draw(); }, 15_000);  // times such as "2 min ago"

page.begin();

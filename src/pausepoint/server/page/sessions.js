// Sessions: the whole list, filtered by the address so that it can be shared, with verbs for what is selected.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of, post, upload } from './api.js';
import { at, status, STATUSES } from './shapes.js';
import { counted, money, number, sum, time } from './words.js';
import { why } from './dialog.js';
import { href } from './compare.js';
import { tell } from './toast.js';

const KEPT = 'pausepoint.columns';
const VERBS = { Pause: 'paused', Resume: 'resumed', Cancel: 'cancelled' };
const FURTHER = ['owner', 'tag', 'queue', 'failed', 'since', 'until', 'text'];  // filters that are set elsewhere
const COLUMNS = {  // what a cell shows, and its class
  at: [at],
  owner: [(s) => s.owner && filter('owner', s.owner)],
  tags: [(s) => s.tags.map((tag) => filter('tag', tag))],
  spent: [(s) => money(s.spent_usd), 'r num'],
  created: [(s) => time(s.created_at), 'r num'],
  changed: [(s) => time(s.updated_at), 'r num'],
};

const selected = new Set();  // ids; they stay selected on other pages of the list
const columns = new Set((localStorage.getItem(KEPT) ?? 'at owner spent changed').split(' '));
const shown = () => Object.entries(COLUMNS).filter(([name]) => columns.has(name));

function flip(page, set, name) {
  set.delete(name) || set.add(name);
  localStorage.setItem(KEPT, [...columns].join(' '));
  page.draw();
}

const box = (page, set, name, label) => html`<input type="checkbox" aria-label=${label} .checked=${set.has(name)} @change=${() => flip(page, set, name)}>`;

export const title = () => 'Sessions';
export const keys = { x: (page) => document.querySelectorAll('tbody input')[page.row]?.click() };

export async function load({ query }) {
  const asked = Object.fromEntries(query);
  return { asked, ...await get('/sessions', { ...asked, limit: 100 }) };
}

// filters

function address({ data }, name, value) {
  const { after, [name]: former, ...query } = data.asked;
  return `#/sessions?${new URLSearchParams(value ? { ...query, [name]: value } : query)}`;
}

const go = (page, name, value) => page.go(address(page, name, value), true);
const filter = (name, value) => html`<a class="tag" href="#/sessions?${name}=${encodeURIComponent(value)}">${value}</a> `;

// A button that sets a filter; it is pressed while the filter is set, and then takes it away.
const chip = (page, text, name, value, isOn = true) =>
  html`<button class="tab" aria-pressed=${isOn} @click=${() => go(page, name, !isOn && value)}>${text}</button>`;

function statuses(page, { status: chosen, workflow, ...others }) {
  const counts = workflow ? [page.now.counts[workflow] ?? {}] : Object.values(page.now.counts);
  const count = (name) => sum(counts, name);
  const text = (name) => FURTHER.some((each) => others[each]) ? name : `${name} ${number(count(name))}`;  // the counts are without them
  const isOn = (name) => !!chosen?.split(',').includes(name);
  return STATUSES.filter((name) => count(name) || isOn(name)).map((name) => chip(page, text(name), 'status', name, isOn(name)));
}

const select = (asked, name, options) => html`<select class="in short" name=${name} aria-label=${name}>
  ${options.map((key) => html`<option value=${key} .selected=${key === (asked[name] ?? options[0])}>${name}: ${key || 'any'}</option>`)}</select>`;

// Days are those of the reader: since the first moment of one, until the last moment of another.
const DAY = 8.64e7, DAYS = { since: ['Changed on or after', 0], until: ['Changed on or before', DAY] };
const dayOf = (moment, shift) => Number.isNaN(Date.parse(moment)) ? '' : new Date(Date.parse(moment) - shift - new Date(moment).getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
const day = (asked, [name, [label, shift]]) => html`<label class="row small dim">${label} <input class="in short" type="date" name=${name}
  .value=${asked[name] ? dayOf(asked[name], shift && 1) : ''}></label>`;

function valueOf({ name, value }) {
  if (!DAYS[name] || !value) return value.trim();
  const [year, month, date] = value.split('-').map(Number);
  return new Date(year, month - 1, date + (DAYS[name][1] ? 1 : 0)).toISOString();
}

const filters = (page, asked) => html`<div class="filters" role="search" @change=${({ target }) => go(page, target.name, valueOf(target))}>
  <input class="in" type="search" name="text" placeholder="Search id, owner, tag, error, reason" aria-label="Search sessions" .value=${asked.text ?? ''}>
  ${select(asked, 'workflow', ['', ...Object.keys(page.now.counts).sort()])}${select(asked, 'sort', ['created', 'updated', 'spent', 'workflow', 'id'])}${Object.entries(DAYS).map((each) => day(asked, each))}
  ${FURTHER.filter((name) => asked[name]).map((name) => chip(page, `${name} ${asked[name]} ×`, name))}${statuses(page, asked)}</div>`;

// verbs for what is selected, or for all that match

function whom(asked) {
  const { workflow, owner, tag, queue, since, until } = asked;
  const given = { workflow, owner, tag, queue, since, until, status: asked.status?.split(','), failed: asked.failed && true };
  if (selected.size) return { ids: [...selected] };
  return asked.text || !Object.values(given).some(Boolean) ? null : { filter: given };
}

function acts(page, asked) {
  const which = page.may('operator') && whom(asked);
  return which ? html`<div class="row acts"><span class="dim">${which.ids ? `${number(selected.size)} selected` : 'All that match'}</span>
    ${Object.keys(VERBS).map((say) => html`<button class="b" @click=${() => ask(page, say, which)}>${say}…</button>`)}
    ${selected.size === 2 ? html`<a class="b" href=${href(Object.fromEntries(['one', 'other'].map((name, n) => [name, which.ids[n]])))}>Compare</a>` : ''}
    <button class="b quiet" ?hidden=${!which.ids} @click=${() => { selected.clear(); page.draw(); }}>Clear</button></div>` : '';
}

function ask(page, say, which) {
  const send = (more) => post('/sessions/bulk', { verb: say.toLowerCase(), ...which, ...more });
  const said = ({ done, refused }) => `${counted(done.length, 'session')} ${VERBS[say]}. ${refused[0]?.problem.detail ?? ''}`;
  page.ask({
    title: `${say} ${which.ids ? counted(which.ids.length, 'session') : 'all sessions that match'}`, say, isBad: say === 'Cancel',
    body: () => html`${say === 'Cancel' ? 'A cancelled session ends permanently. Its history stays readable.' : ''}${say === 'Resume' ? '' : why}`,
    plan: async () => report(await send({ dry_run: true }), VERBS[say]),
    send: ({ reason }) => { selected.clear(); return page.act(() => send({ reason }), said); },
  });
}

// Import a session from a file that an export wrote.
const bring = (page) => page.ask({
  title: 'Import a session', say: 'Import',
  body: () => html`<p class="dim">From a file that <b>Export</b> or <code>pausepoint export</code> wrote, with its children, its history and its files. It
      has the status that it had then: a paused session stays paused, and one that sleeps wakes at its time.</p>
    <label class="field">File<input class="in" type="file" name="file" required></label>
    <label class="field">Id, if it should get another one<input class="in mono" name="session_id" maxlength="120" autocomplete="off"></label>
    <label class="field">Folder for its artifacts, if it publishes any<input class="in mono" name="folder" autocomplete="off"
      placeholder="Relative to the folder in which the server was started"></label>`,
  send: async ({ file, session_id, folder }) => {
    const added = await upload('/imports', file, { session_id, folder });
    tell(`${added.session_id} is imported. It is ${added.status}.`);
    page.go('#' + of(added.session_id));
  },
});

// An import may be of any owner.
const importing = (page) => page.may('admin') && page.me.owner == null && !selected.size ? html`<button class="b" @click=${() => bring(page)}>Import…</button>` : '';

// 12 of 14 sessions will be paused; then how many will not, and why.
function report({ done, skipped, refused }, past) {
  const left = Map.groupBy([...skipped, ...refused], (each) => each.reason ?? each.problem.detail);
  return html`<p><b>${number(done.length)} of ${counted(done.length + skipped.length + refused.length, 'session')}</b> will be ${past}.</p>
    ${[...left].map(([reason, some]) => html`<p class="dim">${number(some.length)} will not: ${reason} (${some[0].session_id}${some[1] ? ', …' : ''})</p>`)}`;
}

// Children are below their parent if both are on the page.
function nested(sessions) {
  const here = new Set(sessions.map((s) => s.session_id)), below = Map.groupBy(sessions, (s) => here.has(s.parent_id) ? s.parent_id : '');
  const flat = (id, depth) => (below.get(id) ?? []).flatMap((s) => [[s, depth], ...flat(s.session_id, depth + 1)]);
  return flat('', 0);
}

function row([s, depth], page) {
  const { session_id: id, failure, parent_id: parent } = s, reason = failure ? `${failure.type}: ${failure.message.split('\n')[0]}` :
    s.waits_for_slot ? `waits for a free slot of ${s.waits_for_slot}` : s.pause?.reason;
  return html`<tr><td ?hidden=${!page.may('operator')}>${box(page, selected, id, `select ${id}`)}</td>
    <td class="depth${Math.min(depth, 4)}"><a class="name mono" data-row href="#${of(id)}">${id}</a><div class="dim small clip">
      ${s.workflow}${depth ? '' : parent && html` · child of <a href="#${of(parent)}">${parent}</a>`}${reason && ` · ${reason}`}</div></td>
    <td>${status(s.status)}</td>${shown().map(([, [cell, look]]) => html`<td class="opt dim small ${look}">${cell(s)}</td>`)}</tr>`;
}

const table = (page, sessions) => html`<table>
  <thead><tr><th ?hidden=${!page.may('operator')}><span class="unseen">select</span></th><th>session</th><th>status</th>
    ${shown().map(([name, [, look]]) => html`<th class="opt ${look}">${name}</th>`)}</tr></thead>
  <tbody>${repeat(nested(sessions), ([s]) => s.session_id, (each) => row(each, page))}</tbody></table>`;

const EMPTY = html`<p class="empty"><b>No session matches</b><a href="#/start">Start one</a> here or with <code>pausepoint run</code>, or <a href="#/sessions">show all</a>.</p>`;

export const view = ({ asked, damaged, sessions, next }, page) => html`<div class="top"><h1>Sessions</h1>${acts(page, asked)}<div class="row acts more">${importing(page)}${page.may('operator') ?
  html`<a class="b main" href="#/start${asked.workflow ? `?workflow=${encodeURIComponent(asked.workflow)}` : ''}">Start a session</a>` : ''}</div></div>${filters(page, asked)}
  ${damaged.map(({ error }) => html`<div class="note bad" role="alert"><p>${error}</p></div>`)}
  <section class="sheet" aria-label="List of sessions">${sessions.length ? table(page, sessions) : EMPTY}
    <footer class="row"><a class="b tiny" href=${address(page)} ?hidden=${!asked.after}>First page</a>
      <a class="b tiny" href=${address(page, 'after', next)} ?hidden=${!next}>Next page</a><span class="grow"></span>
      <details class="menu"><summary class="b tiny quiet">Columns</summary><div class="sheet">
        ${Object.keys(COLUMNS).map((name) => html`<label class="check">${box(page, columns, name, name)}${name}</label>`)}</div></details></footer></section>`;

// Sessions: the whole list, filtered by the address so that it can be shared, with verbs for what is selected.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, post } from './api.js';
import { at, status, STATUSES } from './shapes.js';
import { counted, money, number, time } from './words.js';
import { why } from './dialog.js';
import { tell } from './toast.js';

const PAGE = 100;
const SORTS = { created: 'newest', updated: 'last changed', workflow: 'workflow', spent: 'most spent', id: 'id' };
const COLUMNS = { at: 'At', owner: 'Owner', tags: 'Tags', spent: 'Spent', created: 'Created', updated: 'Changed' };
const FILTERS = ['status', 'failed', 'workflow', 'owner', 'tag', 'text', 'level', 'sort', 'reverse'];

const selected = new Set();  // ids; they stay selected on other pages of the list
let columns = new Set(JSON.parse(localStorage.getItem('pausepoint.columns') ?? '["at","owner","spent","updated"]'));

export const title = () => 'Sessions';
export const keys = {
  x: (page) => { const row = document.querySelectorAll('[data-row]')[page.row]; if (row) toggle(page, row.dataset.row); },
  p: (page) => { if (selected.size) ask(page, 'pause'); },
};

export async function load({ query }) {
  const asked = Object.fromEntries(FILTERS.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
  const [list, now] = await Promise.all([get('/sessions', { ...asked, after: query.get('after'), limit: PAGE }), get('/now')]);
  return { list, now, asked };
}

// filters

function changed(page, name, value) {
  const query = new URLSearchParams(page.route.query);
  query.delete('after');
  value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  page.go('#/sessions' + (text ? '?' + text : ''), true);
}

const total = (now, name, workflow) => Object.entries(now.counts).reduce((sum, [each, counts]) => sum + (!workflow || workflow === each ? counts[name] ?? 0 : 0), 0);

function statuses({ now, asked }, page) {
  const chosen = (asked.status ?? '').split(',').filter(Boolean);
  const press = (name) => changed(page, 'status', (chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]).join(','));
  return STATUSES.filter((name) => total(now, name, asked.workflow) || chosen.includes(name)).map((name) => html`<button class="tab" aria-pressed=${chosen.includes(name)} @click=${() => press(name)}>${name} <span class="num">${number(total(now, name, asked.workflow))}</span></button>`);
}

function select(page, name, label, options, value) {
  return html`<label class="pick"><span class="unseen">${label}</span><select class="in" aria-label=${label} @change=${(event) => changed(page, name, event.target.value)}>${options.map(([key, text]) => html`<option value=${key} ?selected=${key === (value ?? '')}>${text}</option>`)}</select></label>`;
}

function filters(d, page) {
  const { asked, now } = d;
  return html`<div class="filters" role="search">
    <input class="in" type="search" placeholder="Search id, owner, tag, error, reason" aria-label="Search sessions" aria-keyshortcuts="/" .value=${asked.text ?? ''} @change=${(event) => changed(page, 'text', event.target.value.trim())}>
    ${select(page, 'workflow', 'Workflow', [['', 'all workflows'], ...Object.keys(now.counts).sort().map((name) => [name, name])], asked.workflow)}
    ${select(page, 'sort', 'Sort', Object.entries(SORTS).map(([key, text]) => [key === 'created' ? '' : key, `by ${text}`]), asked.sort)}
    ${select(page, 'level', 'Children', [['', 'with children'], ['root', 'without children']], asked.level)}
    ${['owner', 'tag'].filter((name) => asked[name]).map((name) => html`<button class="tab" aria-pressed="true" @click=${() => changed(page, name, '')}>${name} ${asked[name]} ×</button>`)}
    ${asked.failed ? html`<button class="tab" aria-pressed="true" @click=${() => changed(page, 'failed', '')}>failed, also paused ones ×</button>` : nothing}</div>
  <div class="filters" aria-label="Status">${statuses(d, page)}</div>`;
}

// selection and verbs for many

function toggle(page, id) {
  selected.has(id) ? selected.delete(id) : selected.add(id);
  page.draw();
}

function bar(d, page) {
  if (!page.may('operator')) return nothing;
  const matches = Object.keys(d.asked).some((name) => ['status', 'failed', 'workflow', 'owner', 'tag'].includes(name)) && !d.asked.text;
  if (!selected.size && !matches) return nothing;
  const what = selected.size ? `${counted(selected.size, 'session')} selected` : 'All that match';
  return html`<div class="row acts"><span class="dim">${what}</span>${['pause', 'resume', 'cancel'].map((verb) => html`<button class="b ${verb === 'cancel' ? 'bad' : ''}" @click=${() => ask(page, verb)}>${VERBS[verb]}…</button>`)}${selected.size ? html`<button class="b quiet" @click=${() => { selected.clear(); page.draw(); }}>Clear</button>` : nothing}</div>`;
}

const VERBS = { pause: 'Pause', resume: 'Resume', cancel: 'Cancel' };
const PAST = { pause: 'paused', resume: 'resumed', cancel: 'cancelled' };

function whom(page) {
  if (selected.size) return { ids: [...selected] };
  const { status, failed, workflow, owner, tag } = page.data.asked;
  return { filter: { ...(status ? { status: status.split(',') } : {}), ...(failed ? { failed: true } : {}), ...(workflow ? { workflow } : {}), ...(owner ? { owner } : {}), ...(tag ? { tag } : {}) } };
}

function ask(page, verb) {
  const which = whom(page);
  page.ask({
    title: `${VERBS[verb]} ${selected.size ? counted(selected.size, 'session') : 'all sessions that match'}`, say: VERBS[verb], isBad: verb === 'cancel',
    body: () => html`${verb === 'resume' ? nothing : why}${verb === 'cancel' ? html`<p class="dim">A cancelled session ends permanently. Its history stays readable.</p>` : nothing}`,
    plan: async () => report(await post('/sessions/bulk', { verb, ...which, dry_run: true }), verb),
    send: async ({ reason = '' }) => {
      const found = await post('/sessions/bulk', { verb, ...which, reason });
      selected.clear();
      tell(`${counted(found.done.length, 'session')} ${PAST[verb]}.${found.refused.length ? ` ${counted(found.refused.length, 'session')} refused: ${found.refused[0].problem.detail}` : ''}`);
      await page.load();
    },
  });
}

// What a dry run says: 12 of 14 will pause; 2 have ended.
function report({ done, skipped, refused }, verb) {
  const all = done.length + skipped.length + refused.length;
  return html`<p><b>${number(done.length)}</b> of ${counted(all, 'session')} would be ${PAST[verb]}.</p>
    ${skipped.length || refused.length ? html`<ul class="planlist" aria-label="Left out">${[...skipped, ...refused].slice(0, 50).map((each) => html`<li><span class="verdict may">stays</span><b class="mono clip">${each.session_id}</b><span class="dim">${each.problem?.detail ?? each.reason ?? ''}</span></li>`)}</ul>` : nothing}`;
}

// the table

const shows = (name) => columns.has(name);

function columnsMenu(page) {
  const flip = (name) => { shows(name) ? columns.delete(name) : columns.add(name); localStorage.setItem('pausepoint.columns', JSON.stringify([...columns])); page.draw(); };
  return html`<details class="menu"><summary class="b tiny quiet">Columns</summary><div class="sheet">${Object.entries(COLUMNS).map(([name, text]) => html`<label class="check"><input type="checkbox" .checked=${shows(name)} @change=${() => flip(name)}><span>${text}</span></label>`)}</div></details>`;
}

const CELLS = {
  at: (s) => html`<td class="opt dim">${at(s)}${s.progress ? ` ${number(s.progress.done)}/${number(s.progress.total)}` : ''}</td>`,
  owner: (s) => html`<td class="opt dim">${s.owner ? html`<a href="#/sessions?owner=${encodeURIComponent(s.owner)}">${s.owner}</a>` : ''}</td>`,
  tags: (s) => html`<td class="opt">${s.tags.map((tag) => html`<a class="tag" href="#/sessions?tag=${encodeURIComponent(tag)}">${tag}</a> `)}</td>`,
  spent: (s) => html`<td class="opt r num">${money(s.spent_usd)}</td>`,
  created: (s) => html`<td class="opt r dim small num">${time(s.created_at)}</td>`,
  updated: (s) => html`<td class="opt r dim small num">${time(s.updated_at)}</td>`,
};

// Children stand below their parent if both are on the page.
function nested(sessions) {
  const here = new Map(sessions.map((s) => [s.session_id, s])), below = new Map();
  for (const s of sessions) if (here.has(s.parent_id)) below.set(s.parent_id, [...(below.get(s.parent_id) ?? []), s]);
  const flat = (s, depth) => [[s, depth], ...(below.get(s.session_id) ?? []).flatMap((each) => flat(each, depth + 1))];
  return sessions.filter((s) => !here.has(s.parent_id)).flatMap((s) => flat(s, 0));
}

function row([s, depth], page) {
  const href = `#/sessions/${encodeURIComponent(s.session_id)}`;
  const sub = s.failure ? `${s.failure.type}: ${s.failure.message.split('\n')[0]}` : s.pause?.reason ?? '';
  return html`<tr data-row=${s.session_id}>
    ${page.may('operator') ? html`<td><input type="checkbox" aria-label="select ${s.session_id}" .checked=${selected.has(s.session_id)} @change=${() => toggle(page, s.session_id)}></td>` : nothing}
    <td class="depth${Math.min(depth, 4)}"><a class="name mono" href=${href}>${s.session_id}</a><div class="dim small clip">${s.workflow}${s.parent_id && !depth ? html` · child of <a href="#/sessions/${encodeURIComponent(s.parent_id)}">${s.parent_id}</a>` : nothing}${sub ? html` · ${sub}` : nothing}<span class="narrow"> · ${at(s) || 'ended'} · ${time(s.updated_at)}</span></div></td>
    <td>${status(s.status)}</td>${Object.keys(COLUMNS).filter(shows).map((name) => CELLS[name](s))}</tr>`;
}

function table(d, page) {
  const rows = nested(d.list.sessions);
  return html`<table><thead><tr>${page.may('operator') ? html`<th><span class="unseen">Select</span></th>` : nothing}<th>Session</th><th>Status</th>${Object.keys(COLUMNS).filter(shows).map((name) => html`<th class="opt ${['spent', 'created', 'updated'].includes(name) ? 'r' : ''}">${COLUMNS[name]}</th>`)}</tr></thead>
    <tbody>${repeat(rows, ([s]) => s.session_id, (each) => row(each, page))}</tbody></table>`;
}

function pages(d, page) {
  const next = new URLSearchParams(page.route.query);
  next.set('after', d.list.next ?? '');
  const first = new URLSearchParams(page.route.query);
  first.delete('after');
  return html`<footer class="row">${page.route.query.get('after') ? html`<a class="b tiny" href="#/sessions?${first}">First page</a>` : nothing}${d.list.next ? html`<a class="b tiny" href="#/sessions?${next}">Next page</a>` : nothing}<span class="grow"></span>${columnsMenu(page)}</footer>`;
}

const empty = (d) => Object.keys(d.asked).length
  ? html`<p class="empty"><b>No session matches</b><a href="#/sessions">Show all sessions</a></p>`
  : html`<p class="empty"><b>There is no session yet</b>Start one with <code>pausepoint run</code>, or from your own program.</p>`;

export function view(d, page) {
  return html`<div class="top"><div><h1>Sessions</h1></div>${bar(d, page)}</div>${filters(d, page)}
    ${d.list.damaged.length ? html`<div class="note bad" role="alert"><p>${counted(d.list.damaged.length, 'session')} cannot be read: ${d.list.damaged[0].error}</p></div>` : nothing}
    <section class="sheet" aria-label="List of sessions">${d.list.sessions.length ? table(d, page) : empty(d)}${pages(d, page)}</section>`;
}

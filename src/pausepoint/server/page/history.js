// The tab History: the last events, newest first, and new ones as they come; or those before a place in the history.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { clock, counted } from './words.js';
import { ROWS } from './shapes.js';
import { ask } from './verbs.js';

const READ = 1000;
const { compare } = new Intl.Collator('en', { numeric: true });

let lines = { events: new Map() };  // the newest ones of one session, by cursor: some come twice

// Read the newest ones once, then what is new. An earlier page is read whole: it does not change.
export async function load(d) {
  const { session_id: id } = d.s, path = of(id) + '/events', before = d.query.get('events');
  if (before) return { past: (await get(path, { before, limit: READ })).events };
  const last = lines.id === id && [...lines.events.keys()].at(-1), query = last ? `after=${last}` : 'before=';
  const { events } = await get(`${path}?${query}&limit=${READ}`);
  if (!last) lines = { id, events: new Map() };
  heard(events);
  if (last && events.length === READ) await load(d);
}

export function heard(events) {
  for (const each of events) if (each.session_id === lines.id) lines.events.set(each.cursor, each);
  lines.events = new Map([...lines.events].sort(([a], [b]) => compare(a, b)).slice(-5 * READ));
}

export const forget = () => { lines.id = ''; };

const kindOf = ({ event_type }) => event_type.split('.')[0];

const remove = (event, d, page) => page.may('admin') && event.event_type !== 'redacted' ? html`<div class="row pad"><button class="b tiny quiet bad"
  @click=${() => ask('redact', { ...d, event }, page)}>Redact…</button></div>` : '';

const row = (event, d, page) => html`<details class="evd"><summary class="ev"><span class="t">${clock(event.created_at)}</span><span
  class="ty dim clip mono">${event.event_type}</span><span class="clip"><span
    class="dim">${event.summary.includes(event.agent_name) ? '' : event.agent_name}</span> ${event.summary}</span></summary><pre class="trace"
      tabindex="0">${JSON.stringify(event.data, null, 2)}</pre>${remove(event, d, page)}</details>`;

const OLDEST = 100;  // records; they have about as many events
const isFirst = ({ event_type }) => ['session.created', 'session.forked'].includes(event_type);

function ways(d, page, all, drawn) {
  const link = (text, events) => html`<a class="b tiny" href=${d.to({ events })}>${text}</a>`, oldest = drawn.at(-1) ?? all.at(-1);
  const jump = (event) => {
    event.preventDefault();
    page.go(d.to({ events: `${Number(event.target.record.value) + 1}.0.0` }));
  };
  return html`${oldest && !isFirst(oldest) ? [link('Earlier events', oldest.cursor), link('Oldest events', `${Math.min(d.s.seq, OLDEST) + 1}.0.0`)] : ''}${d.past ? link('Latest events', '') : ''}
    <form class="row" aria-label="Jump to a record" @submit=${jump}><input class="in short jump" name="record" type="number" min="1" max=${d.s.seq} required
      placeholder="Record" aria-label="Number of the record"><button class="b tiny">Go</button></form>`;
}

export function view(d, page) {
  const kind = d.query.get('type') ?? '', all = d.past ? [...d.past].reverse() : [...lines.events.values()].reverse(), found = all.filter((event) => !kind || kindOf(event) === kind);
  const drawn = found.slice(0, ROWS), rest = found.length > drawn.length ? drawn : [];
  return html`<div class="row pad small dim"><label class="row">Show <select class="in short"
    @change=${({ target }) => page.go(d.to({ type: target.value }), true)}>${[...new Set(['', kind, ...all.map(kindOf).sort()])].map((name) =>
      html`<option value=${name} ?selected=${name === kind}>${name || 'everything'}</option>`)}</select></label>${counted(drawn.length, 'event')}${
        d.past ? ', earlier ones' : ', the newest'}<span class="grow"></span>${ways(d, page, all, rest)}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="History">${repeat(drawn, (event) => event.cursor, (event) => row(event, d, page))}${drawn.length ? '' :
      html`<p class="empty">None of the ${counted(all.length, 'event')} that were read is of this kind.</p>`}</div>`;
}

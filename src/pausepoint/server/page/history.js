// The tab History: the last events, newest first, and new ones as they come.
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { clock, counted } from './words.js';
import { more, ROWS } from './shapes.js';

const READ = 1000;
const { compare } = new Intl.Collator('en', { numeric: true });

let lines = { events: new Map() };  // of one session, by cursor: some come twice

// A cursor names a record, so the last events are those after an earlier record.
export async function load(d) {
  const { session_id: id, seq, signals } = d.s, known = lines.id === id ? [...lines.events.keys()] : [];
  const after = known.at(-1) ?? `${Math.max(0, seq - READ)}.${Math.max(0, signals - 50)}.0`;
  const { events } = await get(of(id) + '/events', { after, limit: READ });
  if (!known.length) lines = { id, events: new Map() };
  heard(events);
  if (events.length === READ) await load(d);
}

export function heard(events) {
  for (const each of events) if (each.session_id === lines.id) lines.events.set(each.cursor, each);
  lines.events = new Map([...lines.events].sort(([a], [b]) => compare(a, b)).slice(-5 * READ));
}

export const forget = () => { lines.id = ''; };

const kindOf = ({ event_type }) => event_type.split('.')[0];

const row = (event) => html`<details class="evd"><summary class="ev"><span class="t">${clock(event.created_at)}</span><span
  class="ty dim clip mono">${event.event_type}</span><span class="clip"><span
    class="dim">${event.summary.includes(event.agent_name) ? '' : event.agent_name}</span> ${event.summary}</span></summary><pre class="trace"
      tabindex="0">${JSON.stringify(event.data, null, 2)}</pre></details>`;

export function view(d, page) {
  const kind = d.query.get('type') ?? '', all = [...lines.events.values()].reverse(), found = all.filter((event) => !kind || kindOf(event) === kind);
  return html`<div class="row pad small dim"><label class="row">Show <select class="in short"
    @change=${({ target }) => page.go(d.to({ type: target.value }), true)}>${[...new Set(['', kind, ...all.map(kindOf).sort()])].map((name) =>
      html`<option value=${name} ?selected=${name === kind}>${name || 'everything'}</option>`)}</select></label>${counted(found.length, 'event')}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="History">${repeat(found.slice(0, ROWS), (event) => event.cursor, row)}</div>${more(found)}`;
}

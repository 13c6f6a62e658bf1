// The tab History: what happened, newest first, and new lines as they come.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, of } from './api.js';
import { clock, counted } from './words.js';

const ROWS = 200, READ = 1000, KEPT = 5000, SIGNALS = 50;
const KINDS = { '': 'everything', session: 'session', step: 'steps', operation: 'operations', question: 'questions', pause: 'pauses', spent: 'cost', file:
  'files', artifact: 'artifacts' };

let lines = { id: '', events: new Map() };  // by cursor, so that a line that comes twice is one
let depth = ROWS;

// The cursor of an event names its record, so the last ones are read from the session's last record backwards.
export async function load({ s }) {
  if (lines.id !== s.session_id) { lines = { id: s.session_id, events: new Map() }; depth = ROWS; }
  const last = [...lines.events.keys()].at(-1);
  const after = last ?? `${Math.max(0, s.seq - depth)}.${Math.max(0, s.signals - SIGNALS)}.0`;
  heard((await get(of(s.session_id) + '/events', { after, limit: READ })).events);
  return {};
}

export function heard(events) {
  for (const each of events) if (each.session_id === lines.id) lines.events.set(each.cursor, each);
  lines.events = new Map([...lines.events].sort(([a], [b]) => order(a, b)).slice(-KEPT));
}

function order(a, b) {
  const [one, other] = [a, b].map((cursor) => cursor.split('.').map(Number));
  return one[0] - other[0] || one[1] - other[1] || one[2] - other[2];
}

// Forget the lines, if some may have been missed.
export const forget = () => lines.events.clear();

function earlier(page) {
  depth += READ;
  forget();
  page.load();
}

const isKind = (event, kind) => !kind || event.event_type.split('.')[0] === kind || (kind === 'question' && event.event_type.startsWith('answer.')) ||
  (kind === 'pause' && /^(resume|cancel)\./.test(event.event_type));

const row = (event) => html`<details class="evd"><summary class="ev"><span class="t">${clock(event.created_at)}</span><span
  class="ty dim clip mono">${event.event_type}</span><span class="clip"
    title=${event.summary}>${event.agent_name && !event.summary.includes(event.agent_name) ? html`<span class="dim">${event.agent_name} </span>` :
      nothing}${event.summary}</span></summary><pre class="trace" tabindex="0">${JSON.stringify(event.data, null, 2)}</pre></details>`;

export function view(d, page) {
  const kind = d.query.get('type') ?? '', all = [...lines.events.values()].reverse(), found = all.filter((event) => isKind(event, kind));
  const isWhole = !all.length || all.some((event) => event.event_type === 'session.created' || event.event_type === 'session.forked');
  return html`<div class="row pad"><label class="row small dim">Show <select class="in short"
    @change=${(event) => page.go(d.to({ type: event.target.value }), true)}>${Object.entries(KINDS).map(([name, text]) =>
      html`<option value=${name} ?selected=${name === kind}>${text}</option>`)}</select></label><span
        class="dim small num">${counted(found.length, 'event')}${found.length > ROWS ? `, the last ${ROWS} are shown` : ''}</span></div>
    ${found.length ? html`<div class="scroll" tabindex="0" role="region"
      aria-label="History">${repeat(found.slice(0, ROWS), (event) => event.cursor, row)}</div>` :
        html`<p class="empty">No such event among the last ${all.length}.</p>`}
    ${isWhole ? nothing : html`<p class="pad"><button class="b tiny" @click=${() => earlier(page)}>Read earlier events</button></p>`}`;
}

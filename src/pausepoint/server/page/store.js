// Store: what needs attention and what to do, engines, queues and limits, schedules, sessions that do not fit the code, jobs, and tokens.
import { html } from './marks.js';
import { act, get, of, post, Problem } from './api.js';
import { item, sheet } from './shapes.js';
import { counted, later, number, size, time } from './words.js';

const LEVELS = { bad: 'failed', warn: 'paused', ok: 'completed' };
const WAYS = { gc: 'Clean up', verify: 'Verify', 'standing-pause': 'Resume on the page Now' };
const FIELDS = { name: 'Name, for the history', owner: 'Owner; empty for all', days: 'Days until it expires; empty for never' };

const SOON = 1000;  // milliseconds until what moves is read again after a change
let due = null, made;  // the token that was just created, with its secret, until the person leaves the screen

export const title = () => 'Store';

// What moves with the sessions: the last one of each schedule, and how many of a queue are ready and at work.
async function moving() {
  const [plans, { queues }, { limits, damaged }] = await Promise.all([get('/schedules'), get('/queues'), get('/limits')]);
  const found = Object.groupBy(limits, ({ scope, name }) => `${scope} ${name}`);
  const rows = queues.map((each) => ({ scope: 'queue', limits: found[`queue ${each.name}`], ...each }));
  for (const some of Object.values(found)) if (some[0].scope !== 'queue') rows.push({ ...some[0], limits: some });
  return { schedules: [...plans.schedules, ...plans.damaged], limits: [...rows, ...damaged.map((message) => ({ message }))] };
}

// The rest does not change with every step, and is read again after other news.
export function live(name, data, page) {
  if (name === 'head') due ??= setTimeout(async () => {
    due = null;
    const found = page.data?.schedules && await moving().catch(() => null);
    if (page.data?.schedules) { Object.assign(page.data, found); page.draw(); }
  }, SOON);
  return name === 'head';
}

export async function load({ query }, page) {
  made = page.data && made;
  const tokens = page.may('admin') && get('/store/tokens').catch(() => null);  // a mounted server may have none
  const [store, misfits, rest, found] = await Promise.all(
    [get('/store'), get('/store/misfits', { after: query.get('after') }), moving(), tokens]);
  return { store, misfits, ...rest, tokens: found?.tokens };
}

const small = (text) => html`<span class="dim small">${text}</span>`;
const links = (ids) => ids.slice(0, 20).map((id) => html`<a class="mono" data-row href="#${of(id)}">${id}</a> `);

// The server names requests as remedies. Here they are the button, or a link to the session.
const remedy = (text) => (text ?? '').split(/((?:GET|POST|DELETE) \/\S+)/).map((part, n) => {
  const [, first, id = first, verb = 'open'] = part.split('/');
  if (n % 2 === 0) return part;
  return WAYS[id] ? html`<b>${WAYS[id]}</b>` : html`<a class="tag" href="#/sessions/${id}">${verb} ${decodeURIComponent(id)}</a>`;
});

const check = ({ level, about, text, way_out }) => item(about, html`<span class="st pill ${LEVELS[level]}">${level}</span>`, text, remedy(way_out));

const engine = (each) => item(`process ${each.pid} on ${each.host}`, small([each.isDead ? 'died, started ' : 'started ', time(each.since)]),
  `drives ${each.workflows.join(', ') || 'nothing'}`, html`holds ${counted(each.sessions.length, 'session')} ${links(each.sessions)}`);

const misfit = ({ session, reasons, ways }) => item(links([session.session_id]), small(session.workflow),
  ...reasons, ...ways.map((way) => ['→ ', remedy(way)]));

// jobs

async function job(path, body) {
  let found = await post(path, body);
  while (found.status === 'running') {
    await new Promise((done) => setTimeout(done, 300));
    found = await get(`/store/jobs/${found.job}`);
  }
  if (found.problem) throw new Problem(found.problem.status, found.problem);
  return found.result;
}

const line = (each) => each.session_id ? `${each.session_id}: ${each.why ?? each.text}` : each.text ?? each;

// Whatever a job has counted or listed.
function report(found) {
  const shown = (name, value) => value.map ? value.slice(0, 200).map(line).join('\n') : name.endsWith('bytes') ? size(value) : number(value);
  const rows = Object.entries(found).filter(([, value]) => value?.length || (value > 0 && value !== true));
  return rows.length && html`<dl class="kv">${rows.map(([name, value]) => html`<dt>${name.replace(/_bytes|_/, ' ')}</dt><dd>${shown(name, value)}</dd>`)}</dl>`;
}

const verify = (page) => page.ask({
  title: 'Verify', body: () => 'Everything that is stored is read and checked. This can take minutes.',
  plan: async () => { const found = await job('/store/verify'); return [found.ok ? 'Nothing is damaged.' : 'Something is damaged.', report(found)]; },
});

const collect = (page) => page.ask({
  title: 'Clean up', say: 'Clean up', body: () => 'Data that no session needs is deleted permanently:',
  plan: async () => {
    const { total_bytes, ...found } = await job('/store/gc', { apply: false });
    return [report(found) || 'Nothing.', html`<p class="dim">The store has ${size(total_bytes)}.</p>`];
  },
  send: () => page.act(() => job('/store/gc', { apply: true }), (found) => `The store is cleaned up. It has ${size(found.total_bytes)}.`),
});

// queues and limits

const drop = (page, what, path, body) => page.ask({
  title: `Remove ${what}`, say: 'Remove', isBad: true, body: () => body,
  send: () => page.act(() => act('DELETE', path), `The ${what} is removed.`),
});

const press = (say, what, does) => html`<button class="b tiny" data-row aria-label="${say} ${what}" @click=${does}>${say}</button>`;
const row = (page, acts) => page.may('operator') ? html`<span class="row">${acts}</span>` : '';

const pathOf = ({ scope, name }) => `/limits/${scope}/${encodeURIComponent(name)}`;
const pick = (label, name, options, chosen, isOff) => html`<label class="field">${label}<select class="in" name=${name} ?disabled=${isOff}>${options.map(([value, text = value]) =>
  html`<option value=${value} ?selected=${value === chosen}>${text}`)}</select></label>`;
const type = (label, name, value = '') => html`<label class="field">${label}<input class="in" name=${name} type="number" min="0" step="any" value=${value}></label>`;
const alone = ({ target }) => { target.form.elements.by.disabled = target.value; };  // a rate counts all sessions together
const TARGET = [pick('Of a', 'scope', [['queue'], ['workflow'], ['lane']]), html`<label class="field">Name<input class="in" name="name" required></label>`];

const set = (page, target, all = target?.limits ?? [], now = all.findLast(({ declared }) => !declared) ?? all.at(-1)) => page.ask({
  title: target ? `Limit of ${target.scope} ${target.name}` : 'Set a limit', say: 'Set',
  body: () => html`${target ? '' : TARGET}${type('At most; 0 to close it, empty to lift the limit of the code', 'most', now?.most ?? '')}
    <div @input=${alone}>${type('In so many seconds; empty for at once', 'per_seconds', now?.per_seconds ?? '')}</div>
    ${pick('Counted', 'by', [['', 'all together'], ['owner', 'for each owner'], ['lane', 'for each lane']], now?.by, now?.per_seconds)}
    <p class="dim">A limit that counts in the same way is replaced. Others stay.</p>`,
  send: async ({ scope, name, most = null, per_seconds, by }) => {
    await act('PUT', pathOf(target ?? { scope, name }), { most: most && +most, per_seconds: per_seconds && +per_seconds, by });
    await page.load();
  },
});

function most({ most: n, per_seconds: seconds, by, declared, counts }) {
  const text = n == null ? 'no limit' : n === 0 ? `closed${by ? ` for each ${by}` : ''}` : `at most ${number(n)} ${seconds ? `in ${seconds} s` : 'at once'}${by ? ` for each ${by}` : ''}`;
  return `${text}${declared ? ', set by the code' : n == null ? ', that of the code is lifted' : ''}${counts || n == null ? '' : ', overridden'}`;
}

const limit = (page) => (each) => {
  const { scope, name, limits = [], ready, at_work, message } = each;
  if (message) return item('A limit', '', message);
  const acts = [press('Limit…', `${scope} ${name}`, () => set(page, each)), limits.some(({ declared }) => !declared) ? press('Remove…',
    `the limit of ${scope} ${name}`, () => drop(page, `limit of ${scope} ${name}`, pathOf(each), 'All limits that were set for it are removed. A limit of the code counts again.')) : ''];
  return item(html`${scope} ${scope === 'lane' ? name : html`<a href="#/sessions?${scope}=${encodeURIComponent(name)}">${name}</a>`}`, row(page, acts),
    `${ready == null ? '' : `${number(ready)} ready, `}${number(at_work)} at work`, ...limits.map(most));
};

// schedules

const plan = ({ name }) => `/schedules/${encodeURIComponent(name)}`;
const change = (page, each, verb, said) => page.act(() => post(`${plan(each)}/${verb}`), said);

const schedule = (page) => (each) => {
  const next = each.message ?? (each.next_at ? html`next run ${later(each.next_at)}` : `paused${each.paused_by ? ` by ${each.paused_by}` : ''}`);
  const [verb, said] = each.next_at ? ['Pause', 'is paused'] : ['Resume', 'is resumed'];
  const acts = [each.message ? '' : [
    press('Trigger', each.name, () => change(page, each, 'trigger', `A session of ${each.name} starts now.`)),
    press(verb, each.name, () => change(page, each, verb.toLowerCase(), `Schedule ${each.name} ${said}.`))],
    press('Remove…', each.name, () => drop(page, `schedule ${each.name}`, plan(each), 'It starts no more sessions. Its sessions stay.'))];
  return item(each.name, row(page, acts), each.cron ? `${each.cron} in ${each.zone}, workflow ${each.workflow}` : '', next,
    each.last_session_id ? html`last session ${links([each.last_session_id])}` : '');
};

// tokens

const create = (page) => page.ask({
  title: 'Create a token', say: 'Create',
  body: () => html`<label class="field">Role<select class="in" name="role"><option>viewer<option>answerer<option>operator<option>admin</select></label>
    ${Object.entries(FIELDS).map(([name, text]) => html`<label class="field">${text}
      <input class="in" name=${name} min="1" type=${name === 'days' ? 'number' : 'text'}></label>`)}`,
  send: async ({ days, ...given }) => {
    made = await post('/store/tokens', { ...given, seconds: days && days * 86400 });
    await page.load();
  },
});

const revoke = (page, { id, name }) => page.ask({
  title: `Revoke ${name}`, say: 'Revoke', isBad: true, body: () => 'Everyone who signed in with this token is signed out.',
  send: () => page.act(() => act('DELETE', `/store/tokens/${id}`), 'The token is revoked.'),
});

const token = (page) => (each) => item(each.name, html`<button class="b tiny" data-row @click=${() => revoke(page, each)}>Revoke…</button>`,
  html`${each.role}${each.owner && ` of ${each.owner}`}, ${each.id}, created ${time(each.created_at)}, expires ${later(each.expires_at) || 'never'}`);

const secret = ({ name, token: text }) => html`<label class="field note">Copy the token of ${name}. It is shown only once.
  <input class="in mono" readonly .value=${text} @focus=${(event) => event.target.select()}></label>`;

const button = (page, say, ask, look) => html`<button class="b ${look}" @click=${() => ask(page)}>${say}…</button>`;

export function view({ store, misfits, schedules, limits, tokens }, page) {
  const [fine, wrong] = [true, false].map((isOk) => store.checks.filter(({ level }) => (level === 'ok') === isOk));
  const checks = [...wrong, ...fine.filter(({ about }) => about !== 'engines')];  // they have a list of their own
  const engines = [...store.engines, ...store.gone.map((each) => ({ ...each, isDead: true }))];
  const jobs = page.may('admin') ? [button(page, 'Verify', verify), button(page, 'Clean up', collect)] : '';
  return html`<div class="top"><h1>Store</h1><div class="row acts">${jobs}</div></div>
    <div class="cols"><div class="stack">${sheet('Findings', checks, check)}
      ${sheet('Sessions that do not fit the code', misfits.misfits, misfit, 'Every session that was checked fits the code of this server.',
        misfits.next && html`<a href="#/store?after=${encodeURIComponent(misfits.next)}">check more</a>`)}</div>
    <div class="stack">${sheet('Engines', engines, engine)}
      ${sheet('Queues and limits', limits, limit(page), 'No session is ready or at work.', page.may('operator') && button(page, 'Set a limit', set, 'tiny'))}
      ${sheet('Schedules', schedules, schedule(page), 'Sessions that start at fixed times: pausepoint schedule add.')}${made ? secret(made) : ''}
      ${tokens && sheet('Tokens', tokens, token(page), 'Programs and people sign in with tokens.', button(page, 'Create', create, 'tiny'))}</div></div>`;
}

// Store: what needs attention and what to do, engines, sessions that do not fit the code, jobs, and tokens.
import { html } from './vendor/lit-html.js';
import { act, get, of, post, Problem } from './api.js';
import { item, sheet } from './shapes.js';
import { counted, later, number, size, time } from './words.js';

const LEVELS = { bad: 'failed', warn: 'paused', ok: 'completed' };
const WAYS = { gc: 'Clean up', verify: 'Verify', 'standing-pause': 'Resume on the page Now' };
const FIELDS = { name: 'Name, for the history', owner: 'Owner; empty for all', days: 'Days until it expires; empty for never' };

let made;  // the token that was just created, with its secret, until the person leaves the screen

export const title = () => 'Store';
export const live = (name) => name === 'head' || name === 'progress';  // what is shown does not change with every step

export async function load({ query }, page) {
  made = page.data && made;
  const tokens = page.may('admin') && get('/store/tokens').catch(() => null);  // a mounted server may have none
  const [store, misfits, found] = await Promise.all([get('/store'), get('/store/misfits', { after: query.get('after') }), tokens]);
  return { store, misfits, tokens: found?.tokens };
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

export function view({ store, misfits, tokens }, page) {
  const [fine, wrong] = [true, false].map((isOk) => store.checks.filter(({ level }) => (level === 'ok') === isOk));
  const checks = [...wrong, ...fine.filter(({ about }) => about !== 'engines')];  // they have a list of their own
  const engines = [...store.engines, ...store.gone.map((each) => ({ ...each, isDead: true }))];
  const jobs = page.may('admin') ? [button(page, 'Verify', verify), button(page, 'Clean up', collect)] : '';
  return html`<div class="top"><h1>Store</h1><div class="row acts">${jobs}</div></div>
    <div class="cols"><div class="stack">${sheet('Findings', checks, check)}
      ${sheet('Sessions that do not fit the code', misfits.misfits, misfit, 'Every session that was checked fits the code of this server.',
        misfits.next && html`<a href="#/store?after=${encodeURIComponent(misfits.next)}">check more</a>`)}</div>
    <div class="stack">${sheet('Engines', engines, engine)}${made ? secret(made) : ''}
      ${tokens && sheet('Tokens', tokens, token(page), 'Programs and people sign in with tokens.', button(page, 'Create', create, 'tiny'))}</div></div>`;
}

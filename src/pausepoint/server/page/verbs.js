// The dialogs of a session's verbs. Each verb that runs something shows first what it would run, and why.
import { html, nothing } from './vendor/lit-html.js';
import { of, post, Problem } from './api.js';
import { at } from './shapes.js';
import { capital, counted, shown } from './words.js';
import { how, opened, why } from './dialog.js';
import { drawn, forget, readValue } from './form.js';
import { Large, read } from './state.js';
import { tell } from './toast.js';

const ROWS = 200, ITEMS = 20, KINDS = { resume: 'main', cancel: 'quiet bad' };

export function can({ status }) {
  const isIn = (...names) => names.includes(status), isOver = isIn('completed', 'cancelled'), isHeld = isIn('running', 'pausing');
  return { pause: !isOver && !isIn('paused', 'pausing'), resume: isIn('paused', 'failed', 'ready', 'created'), rewind: !isHeld && !isIn('created'), fork: true,
    edit: !isHeld, cancel: !isOver };
}

export const buttons = (d, page) => html`<div class="row acts">${Object.entries(can(d.s)).map(([verb, may]) => may ?
  html`<button class="b ${KINDS[verb] ?? ''}" @click=${() => ask(verb, d, page)}>${capital(verb)}…</button>` : nothing)}</div>`;

const row = ([verdict, name, text, kind = verdict.split(' ')[0]]) =>
  html`<li><span class="verdict ${kind}">${verdict}</span><b class="mono clip" title=${name}>${name}</b><span class="dim">${text}</span></li>`;

function planned({ obstacles, steps, operations, replaces }) {
  const rows = [
    ...obstacles.map((text) => ['stops', '', text, 'stop']),
    ...steps.flatMap((each) => [[each.verdict, each.step, each.why], ...(each.verdict === 'next' ? operations : []).map((some) =>
      [some.verdict, `· ${some.operation}`, some.why])]),
    ...replaces.map(({ step, path, kept }) => ['replaces', step, `writes ${path} again; the edit is kept in ${kept}`, 'stop']),
  ];
  return html`<p class="dim">What would run then, and why:</p><ul class="planlist" aria-label="Plan">${rows.slice(0, ROWS).map(row)}</ul>`;
}

// Each verb says the schema of its form (`fields`; `more` is folded), the request that a filled form makes (`asks`), and
// what the session does then (`said`).

const form = (properties, required = []) => ({ type: 'object', properties, required });

async function resume({ s }) {
  // Files may have been edited since the session was read. A refusal is shown where the plan would be.
  const { undecided = [], replaces = [], steps = [] } = await post(of(s.session_id) + '/plan', { verb: 'resume' }).catch(() => ({}));
  const files = [...undecided, ...replaces.filter((each) => each.accepted && !each.decided).map((each) => each.path)];
  const done = steps.filter((each) => each.visits && each.verdict === 'done').slice(0, ROWS).map(({ step, visits }) =>
    [step, { type: 'boolean', title: `${step} (${counted(visits, 'visit')})` }]);
  return {
    said: 'is resumed', extra: nothing,
    fields: form({ ...(files.length && { edits: { title: `Edits of ${files.join(', ')}`, enum: ['accept', 'discard'] } }) }, ['edits']),
    more: {
      budget_usd: { type: 'number', title: 'Budget in USD', minimum: 0, description: `Present limit: ${s.budget_usd ?? 'none'}` },
      ...(done.length && { rerun: { title: 'Run finished steps again', ...form(Object.fromEntries(done)) } }),
      code: { type: 'boolean', title: 'Accept changed code' },
    },
    asks: ({ rerun = {}, code, ...rest }) => ({ ...rest, rerun: Object.keys(rerun).filter((step) => rerun[step]), code: code ? 'accept' : undefined }),
  };
}

// The places of a session have names that a person reads.
function travel({ s, points, before, query }, field, title, now = []) {
  const place = `${s.step}#${s.visit}`, open = s.step && !s.held_by_guard && !before ? [[place, place]] : [];
  const past = points.filter((each) => now.length || !each.left_behind).map(({ name, seq, left_behind }) =>
    [`${name} (record ${seq}${left_behind ? ', undone by a rewind' : ''})`, seq]).reverse();
  const found = new Map([...now, ...open, ...past].slice(0, ROWS)), names = [...found.keys()];
  return {
    asks: (given) => ({ ...given, [field]: found.get(given[field]) }),
    fields: form({ [field]: { title, enum: names, default: names.find((name) => found.get(name) == query.get('at')) ?? names[0] } }, [field]),
    more: {
      changes: { type: 'object', title: 'Change fields', description: 'Field and new value, such as {"topic": "squid"}' },
      reuse: { type: 'boolean', title: 'Reuse results', description: 'Operations and steps with the same input do not run again' },
    },
  };
}

const rewind = (d) => ({ ...travel(d, 'to', 'To before'), said: 'is rewound', text:
  'Nothing is deleted: visits that are undone stay readable. The session is ready then; resume it to run.' });

function fork(d) {
  const found = travel(d, 'at', 'From now, or from before a visit', [['now']]);
  Object.assign(found.fields.properties, {
    session_id: { type: 'string', title: 'Id of the new session', maxLength: 120 },
    paused: { type: 'boolean', title: 'Leave it paused', default: true, description: 'Otherwise it runs at once' },
  });
  return { ...found, said: 'is forked', text: "A new session with this one's past. This one does not change." };
}

// A value that the form cannot draw as it is, and a long list, are edited as JSON.
function field({ title, description, ...rest } = {}, value) {
  const [kind, ...others] = (rest.anyOf ?? []).filter((each) => each.type !== 'null');
  const isDrawn = rest.type || rest.$ref || rest.enum ? !(value?.length > ITEMS && typeof value === 'object') :
    !others.length && ['string', 'integer', 'number', 'boolean'].includes(kind?.type);
  return { title, description, ...(isDrawn ? rest : { type: 'object' }) };
}

const differs = (before, after) => Object.fromEntries(Object.keys({ ...before, ...after }).filter((name) =>
  JSON.stringify(before[name]) !== JSON.stringify(after[name])).map((name) => [name, after[name] ?? null]));

async function change({ s: { session_id, description: { state } } }) {
  const values = await read(session_id), { true: large = [], false: small = [] } = Object.groupBy(Object.keys(values), (name) => values[name] instanceof Large);
  const properties = Object.fromEntries(small.map((name) => [name, field(state?.properties?.[name], values[name])]));
  return {
    say: 'Save', said: 'is changed', isForm: true, values, fields: { ...state, ...form(properties, small), default: values },
    text: large.length && `Too large to edit here: ${large.join(', ')}.`, asks: (found, first) => ({ fields: differs(first, found) }),
  };
}

const lenient = (text) => { try { return JSON.parse(text); } catch { return text; } };

const VERBS = {
  pause: () => ({ said: 'pauses', plan: null, extra: [why, how], text: 'It stops at the next safe point, with its children. What is finished is kept.' }),
  cancel: () => ({ say: 'Cancel the session', said: 'is cancelled', isBad: true, plan: null, text:
    'It ends permanently at the next safe point, with its children. Its history stays readable.' }),
  send: () => ({ title: 'Send a message to', said: 'has the message', plan: null, extra: nothing, asks: ({ message }) => ({ value: lenient(message) }),
    fields: form({ message: { description: 'JSON, or else text' } }, ['message']) }),
  wake: () => ({ path: 'resume', say: 'Wake now', said: 'is woken', extra: nothing, text: 'Its timer ends now.', asks: () => ({ wake: true }) }),
  resume, rewind, fork, edit: change,
};

class Dialog {
  constructor(verb, { session_id: id, etag }, page, given) {
    const name = capital(verb);
    Object.assign(this, { page, id, etag, key: `${verb}-${id}`, title: name, say: name, path: verb, fields: form({}), more: {}, extra: why, asks: () => ({}) },
      given);
    this.title += ` ${id}`;
    this.all = { ...this.fields, properties: { ...this.fields.properties, ...this.more } };
    forget(this.key);
  }

  drawn(schema) { return drawn(this.key, schema, this.refusal, () => this.page.draw()); }

  body = () => html`${this.text ? html`<p class="dim">${this.text}</p>` : nothing}<div class="f">${this.drawn(this.fields)}</div>
    ${Object.keys(this.more).length ? html`<details class="known"><summary>Options</summary><div class="f">${this.drawn(form(this.more))}</div></details>` :
      nothing}${this.extra}`;

  // The first reading has the values as they were drawn. An edit sends only what differs from them.
  request({ reason, mode, freeze }) {
    const found = readValue(this.key, this.all, document.querySelector('dialog form'));
    return { reason, mode, freeze, ...this.asks(found, this.first ??= found) };
  }

  plan = (given) => this.tried(async () => {
    const { fields, rerun, to, at: from, changes, reuse } = this.request(given), verb = fields && !Object.keys(fields).length ? 'resume' : this.path;
    return planned(await post(of(this.id) + '/plan', { verb, fields, rerun, to, at: from, changes, reuse }));
  });

  send = (given) => this.tried(async () => {
    const found = await post(`${of(this.id)}/${this.path}`, this.request(given), { 'if-match': this.etag });
    tell([`${found.session_id} ${this.said}.`, ...(found.drivers ?? []).map((each) => each.advice)].join(' '));
    if (found.session_id === this.id) await this.page.load();
    else this.page.go(`#/sessions/${encodeURIComponent(found.session_id)}`);
  });

  // A complaint about a field is drawn beside it.
  async tried(work) {
    this.refusal = null;
    try {
      return await work();
    } catch (problem) {
      if (problem.present) throw await this.late(problem.present);
      if (!(problem.field?.split(/[.[]/)[0] in this.all.properties)) throw problem;
      this.refusal = { text: problem.message, field: problem.field };
      throw new Problem(400, { detail: 'Correct the marked field.' });
    } finally {
      this.page.draw();
    }
  }

  // The session is not as the person saw it. Say what is new; a second click then counts.
  async late({ etag, status, ...rest }) {
    const values = this.values && await read(this.id), news = Object.entries(differs(this.values ?? {}, values ?? {}));
    Object.assign(this, { etag, values });
    opened(this.page);
    return new Problem(412, { detail: `${this.id} has changed meanwhile, so nothing was done. It is ${status} ${at(rest)} now. ${news.map(([name, value]) =>
      `${name} is ${shown(value).slice(0, ROWS)}. `).join('')}Check the plan, then send it again.` });
  }
}

export const ask = async (verb, d, page) => page.ask(new Dialog(verb, d.s, page, await VERBS[verb](d)));
export const edit = (d, page) => ask('edit', d, page);

// The dialogs of a session's verbs. Each verb that runs something shows first what it would run, and why.
import { html } from './marks.js';
import { act, address, get, of, post, Problem } from './api.js';
import { at, isAgent, ROWS } from './shapes.js';
import { capital, counted, local, shown } from './words.js';
import { how, opened, why } from './dialog.js';
import { drawn, forget, readValue } from './form.js';
import { Large, read } from './state.js';
import { href } from './compare.js';
import { tell } from './toast.js';

const ITEMS = 20, KINDS = { resume: 'main', cancel: 'quiet bad', redact: 'quiet bad' };

// The past of an agent at the gate is in the agent, so nothing here can change it.
export function can(s) {
  const { status } = s, isIn = (...names) => names.includes(status), isOver = isIn('completed', 'cancelled'), isHeld = isIn('running', 'pausing');
  return { pause: !isOver && !isIn('failed', 'paused', 'pausing'), resume: isIn('paused', 'failed', 'ready', 'created'), rewind: !isAgent(s) && !isHeld,
    fork: !isAgent(s), edit: !isAgent(s) && !isHeld, cancel: !isOver };
}

const button = (verb, d, page) => html`<button class="b ${KINDS[verb] ?? ''}" @click=${() => ask(verb, d, page)}>${capital(verb)}…</button>`;

// Only an administrator takes a session out of the store, or a part of it.
const leave = (d, page) => html`<a class="b quiet" href=${address(of(d.s.session_id) + '/export')} download>Export</a>${d.points ? button('redact', d, page) : ''}<button
  class="b quiet bad" @click=${() => remove(d, page)}>Delete…</button>`;

// A fork is compared with its source, unless the person names another session.
const compare = ({ s: { session_id: id, origin } }) => html`<a class="b quiet" href=${href(origin ? { one: origin.session_id, other: id } : { one: id })}>Compare</a>`;

export const buttons = (d, page) => html`<div class="row acts">${Object.entries(can(d.s)).map(([verb, may]) => may && page.may('operator') ? button(verb, d, page) : '')}${
  d.points ? compare(d) : ''}${page.may('admin') ? leave(d, page) : ''}</div>`;

// Say what would be deleted, with its children. The person types the id, because nothing brings it back.
function remove({ s: { session_id: id } }, page) {
  page.ask({
    title: `Delete ${id}`, say: 'Delete it permanently', isBad: true,
    body: () => html`<p class="dim">Its state, history, files and questions are deleted, and those of its children. Only a note stays: who deleted it,
      when, and why. Artifacts in its folder stay. Export it first to keep a copy.</p>${why}<label class="field">Type the id of the session<input class="in mono"
        name="typed" autocomplete="off" required></label>`,
    plan: async () => {
      const { sessions } = await get(of(id) + '/tree'), busy = sessions.filter((each) => ['running', 'pausing'].includes(each.status));
      return html`<p class="dim">${counted(sessions.length, 'session')} would be deleted:</p><ul class="planlist" aria-label="Plan" tabindex="0">${sessions.slice(0, ROWS).map((each) =>
        html`<li><span class="verdict ${busy.includes(each) ? 'stop' : 'failed'}">${each.status}</span><b class="mono clip">${each.session_id}</b><span class="dim">${
          busy.includes(each) ? 'It runs. Pause or cancel it first.' : each.workflow}</span></li>`)}</ul>`;
    },
    send: async ({ reason, typed }) => {
      if (typed.trim() !== id) throw new Problem(400, { detail: 'This is not the id of the session. Nothing was deleted.' });
      await act('DELETE', of(id), { reason });
      tell(`${id} is deleted.`);
      page.go('#/sessions');
    },
  });
}

async function redact({ s: { session_id: id }, event }) {
  const names = event ? [] : Object.keys(await read(id));
  return {
    say: 'Redact', said: 'is redacted', plan: null, isBad: true, extra: why, title: 'Redact',
    text: event ? `The content of “${event.summary}” is removed permanently, also from earlier states. The history still says that it existed, and who removed it.` :
      'A field is emptied in every record of the history, with the results of the operations that made it. Its value becomes the default of the workflow. Nothing brings it back.',
    fields: event ? form({}) : form({ field: { title: 'Field', enum: names } }, ['field']), asks: (given) => event ? { event: event.cursor } : given,
  };
}

const row = ([verdict, name, text, kind = verdict.split(' ')[0]]) =>
  html`<li><span class="verdict ${kind}">${verdict}</span><b class="mono clip">${name}</b><span class="dim">${local(text)}</span></li>`;

function planned({ obstacles, steps, operations, replaces }) {
  const rows = [
    ...obstacles.map((text) => ['stops', '', text, 'stop']),
    ...steps.flatMap((each) => [[each.verdict, each.step, each.why], ...operations.filter(({ step }) => step === each.step).map((some) =>
      [some.verdict, `· ${some.operation}`, some.why])]),
    ...replaces.map(({ step, path, kept }) => ['replaces', step, `writes ${path} again; the edit is kept in ${kept}`, 'stop']),
  ];
  return html`<p class="dim">What would run then, and why:</p><ul class="planlist" aria-label="Plan" tabindex="0">${rows.slice(0, ROWS).map(row)}</ul>`;
}

// A verb: the schema of its form (`fields`; `more` is folded), the request that it makes of it (`asks`), and what the session does then (`said`).

const form = (properties, required) => ({ type: 'object', properties, required });
const box = (title, description) => ({ type: 'boolean', title, description });

async function resume({ s }) {
  // read again, because files may have been edited; a refusal is shown where the plan would be
  const { undecided = [], replaces = [], steps = [] } = await post(of(s.session_id) + '/plan', { verb: 'resume' }).catch(() => ({}));
  const files = [...undecided, ...replaces.filter((each) => each.accepted && !each.decided).map((each) => each.path)];
  const done = steps.filter((each) => each.visits && each.verdict === 'done').map(({ step, visits }) =>
    [step, box(`${step} (${counted(visits, 'visit')})`)]);
  return {
    said: 'is resumed', extra: '',
    fields: form({ ...(files.length && { edits: { title: `Edits of ${files.join(', ')}`, enum: ['accept', 'discard'] } }) }, ['edits']),
    more: {
      budget_usd: { type: 'number', title: 'Budget in USD', minimum: 0, description: `Present limit: ${s.budget_usd ?? 'none'}` },
      ...(done.length && { rerun: { title: 'Run finished steps again', ...form(Object.fromEntries(done)) } }),
      code: box('Accept changed code'),
    },
    asks: ({ rerun = {}, code, ...rest }) => ({ ...rest, rerun: Object.keys(rerun).filter((step) => rerun[step]), code: code ? 'accept' : undefined }),
  };
}

const lenient = (text) => { try { return JSON.parse(text); } catch { return text; } };

function travel({ s, points, query, operation }, field, title, now = []) {
  const changes = { type: 'object', title: 'Change fields', description: 'Field and new value, such as {"topic": "squid"}' };
  if (operation) return {
    asks: ({ result, ...given }) => ({ ...given, [`${field}_operation`]: operation.seq, result: result ? lenient(result) : undefined }),
    fields: form({}), more: { ...(field === 'to' && { result: { type: 'string', title: 'Result', description: 'JSON, or else text. It returns this instead of running again' } }), changes },
  };
  const place = `${s.step}#${s.visit}`, open = s.step && !s.held_by_guard ? [[place, place]] : [];
  const past = points.filter((each) => now.length || !each.left_behind).map(({ name, seq, left_behind }) =>
    [`${name} (record ${seq}${left_behind ? ', undone by a rewind' : ''})`, seq]).reverse();
  const found = new Map([...now, ...open, ...past]), names = [...found.keys()];
  return {
    asks: (given) => ({ ...given, [field]: found.get(given[field]) }),
    fields: form({ [field]: { title, enum: names, default: names.find((name) => found.get(name) == query.get('at')) ?? names[0] } }, [field]),
    more: {
      changes,
      reuse: box('Reuse results', 'Operations and steps with the same input do not run again'),
    },
  };
}

const before = ({ operation: each }) => each ? `To before ${each.name} ${each.label} in ${each.step}#${each.visit}. What came before it is kept. ` : '';

const rewind = (d) => ({ ...travel(d, 'to', 'To before'), said: 'is rewound', text: `${before(d)}What is undone stays readable. Resume the session to run it.` });

function fork(d) {
  const found = travel(d, 'at', 'From now, or from before a visit', [['now']]);
  Object.assign(found.fields.properties, {
    session_id: { type: 'string', title: 'Id of the new session', maxLength: 120 },
    paused: { ...box('Leave it paused', 'Otherwise it runs at once'), default: true },
  });
  return { ...found, said: 'is forked', text: before(d) + "A new session with this one's past. This one does not change." };
}

// A value that the form cannot draw as it is, and a long list, are edited as JSON.
function field({ title, description, ...rest } = {}, value) {
  const kinds = (rest.anyOf ?? []).map((each) => each.type).filter((each) => each !== 'null').join(' ');
  const isDrawn = rest.type || rest.$ref || rest.enum ? !(Array.isArray(value) && value.length > ITEMS) : /^(string|integer|number|boolean)$/.test(kinds);
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

const VERBS = {
  pause: () => ({ said: 'pauses', plan: null, extra: [why, how], text: 'It stops at the next safe point, with its children. What is finished is kept.' }),
  cancel: () => ({ say: 'Cancel the session', said: 'is cancelled', plan: null, isBad: true, text: 'It ends permanently, with its children.' }),
  send: () => ({ title: 'Send a message to', say: 'Send', said: 'has the message', plan: null, extra: '',
    fields: form({ message: { description: 'JSON, or else text' } }, ['message']), asks: ({ message }) => ({ value: lenient(message) }) }),
  wake: () => ({ path: 'resume', say: 'Wake now', said: 'is woken', extra: '', text: 'Its timer ends now.', asks: () => ({ wake: true }) }),
  resume, rewind, fork, redact, edit: change,
};

export async function ask(verb, d, page) {
  const { session_id: id } = d.s, key = `${verb}-${id}`;
  const it = { title: capital(verb), path: verb, fields: form({}), extra: why, ...await VERBS[verb](d) };
  const all = { ...it.fields, properties: { ...it.fields.properties, ...it.more } };
  let { etag } = d.s, { values } = it, refusal = null, first;

  const fields = (schema) => html`<div class="f">${drawn(key, schema, refusal, () => page.draw())}</div>`;
  const body = () => html`${it.text ? html`<p class="dim">${it.text}</p>` : ''}${fields(it.fields)}${it.more ?
    html`<details class="known"><summary>Options</summary>${fields(form(it.more))}</details>` : ''}${it.extra}`;

  // The first reading has the values as they were drawn. An edit sends only what differs from them.
  function request({ reason, mode, freeze }) {
    const found = readValue(key, all, document.querySelector('dialog form'));
    return { reason, mode, freeze, ...it.asks?.(found, first ??= found) };
  }

  const plan = (given) => tried(async () => {
    const { fields: edits, rerun, to, to_operation, result, at: from, at_operation, changes, reuse, wake } = request(given);
    const verb = edits && !Object.keys(edits).length ? 'resume' : it.path;
    return planned(await post(of(id) + '/plan', { verb, fields: edits, rerun, to, to_operation, result, at: from, at_operation, changes, reuse, wake }));
  });

  const send = (given) => tried(async () => {
    const found = await post(`${of(id)}/${it.path}`, request(given), { 'if-match': etag });
    tell([`${found.session_id ?? id} ${it.said}.`, ...(found.drivers ?? []).map((each) => each.advice)].join(' '));
    await ((found.session_id ?? id) === id ? page.load() : page.go('#' + of(found.session_id)));
  });

  // A complaint about a field is drawn beside it.
  async function tried(work) {
    refusal = null;
    try {
      return await work();
    } catch (problem) {
      if (problem.present) throw await late(problem.present);
      if (!(problem.field?.split(/[.[]/)[0] in all.properties)) throw problem;
      refusal = { text: problem.message, field: problem.field };
      throw new Problem(400, { detail: 'Correct the marked field.' });
    } finally {
      page.draw();
    }
  }

  // The session is not as the person saw it. Say what is new; a second click then counts.
  async function late(present) {
    const found = values && await read(id), news = Object.entries(differs(values ?? {}, found ?? {}));
    [etag, values] = [present.etag, found];
    opened(page);
    return new Problem(412, { detail: `Nothing was done, because ${id} has changed meanwhile. It is ${present.status} ${at(present)} now. ${news.map((each) =>
      `${each[0]} is ${shown(each[1]).slice(0, ROWS)}. `).join('')}Check the plan, then send it again.` });
  }

  forget(key);
  page.ask({ body, plan, send, say: it.title, ...it, title: `${it.title} ${id}` });
}

// The dialogs of a session's verbs. Each verb that runs something shows first what it would run, and why.
import { html, nothing } from './vendor/lit-html.js';
import { of, post, Problem } from './api.js';
import { at } from './shapes.js';
import { counted, money, shown, span } from './words.js';
import { how, opened, why } from './dialog.js';
import { drawn, forget, readValue, Unreadable } from './form.js';
import { Large, read } from './state.js';
import { tell } from './toast.js';

const ROWS = 200, ITEMS = 20;

export function can({ status }) {
  const isOver = ['completed', 'cancelled'].includes(status), isHeld = ['running', 'pausing'].includes(status);
  return { pause: !isOver && !['paused', 'pausing'].includes(status), resume: ['paused', 'failed', 'ready', 'created'].includes(status), edit: !isHeld,
    cancel: !isOver };
}

export function buttons(d, page) {
  const may = can(d.s), first = may.edit ? nothing : 'Pause it first';
  const button = (name, verb, kind = '', isOff = false) => html`<button class="b ${kind}" ?disabled=${isOff} title=${isOff ? first : nothing}
    @click=${() => verb(d, page)}>${name}…</button>`;
  return html`<div class="row acts">${may.pause ? button('Pause', pause) : nothing}${may.resume ? button('Resume', resume, 'main') :
    nothing}${button('Rewind', rewind, '', !may.edit)}${button('Fork', fork)}${button('Edit', edit, '', !may.edit)}${may.cancel ?
      button('Cancel', cancel, 'quiet bad') : nothing}</div>`;
}

// plans

const rows = (list) => list.slice(0, ROWS).map(([kind, verdict, name, text]) =>
  html`<li><span class="verdict ${kind}">${verdict}</span><b class="mono clip" title=${name}>${name}</b><span class="dim">${text}</span></li>`);
const stepRow = (each) => [each.verdict.split(' ')[0], each.verdict, each.step, each.why];
const operationRow = (each) => [each.verdict.split(' ')[0], each.verdict, `· ${each.operation}`, each.why];

export function planned(plan) {
  const list = [
    ...plan.obstacles.map((text) => ['stop', 'stops', '', text]), ...(plan.left_behind ?? []).map((name) => ['may', 'undone', name, 'it stays readable']),
    ...plan.steps.flatMap((each) => [stepRow(each), ...(each.verdict === 'next' ? plan.operations.map(operationRow) : [])]),
    ...plan.replaces.map((each) => ['stop', 'replaces', each.step, `writes ${each.path} again${each.by ? `, which ${each.by} edited` :
      ''}; the edit is kept in ${each.kept}`]),
  ];
  const again = plan.stale.reduce((sum, each) => sum + each.seconds, 0), usd = plan.stale.reduce((sum, each) => sum + each.usd, 0);
  return html`<p class="dim">What would run then, and why:</p><ul class="planlist" aria-label="Plan">${rows(list)}</ul>
    ${plan.stale.length ? html`<p class="small dim">${counted(plan.stale.length, 'finished step')} would run again: ${plan.stale.map((each) =>
      each.step).join(', ')} (${span(again)}${usd ? `, ${money(usd)}` : ''} last time).</p>` : nothing}`;
}

const preview = (d, body) => post(of(d.s.session_id) + '/plan', body).then(planned);

// A session that another engine must drive: the answer says whether there is one.
const told = (text, found) => [text, ...(found?.drivers ?? []).map((each) => each.advice).filter(Boolean)].join(' ');

async function sent(d, page, verb, body, text, headers) {
  const found = await post(`${of(d.s.session_id)}/${verb}`, body, headers);
  tell(told(text, found));
  await page.load();
  return found;
}

// The change is made only if the session is as the person saw it. Otherwise say what changed; a second click then counts.
function guarded(d, page, send) {
  let seen = d.s.etag;
  return async (values) => {
    try {
      await send(values, { 'if-match': seen });
    } catch (problem) {
      if (problem.status !== 412 || !problem.present) throw problem;
      seen = problem.present.etag;
      opened(page);
      throw new Problem(412, { detail: `${d.s.session_id} has changed meanwhile: it is ${problem.present.status}${problem.present.step ?
        ` at ${at(problem.present)}` : ''} now. Nothing was done. Check the plan, then send it again.` });
    }
  };
}

// pause, cancel, send

export const pause = (d, page) => page.ask({
  title: `Pause ${d.s.session_id}`, say: 'Pause',
  body: () => html`<p class="dim">It stops at the next safe point, with its children. Everything that is finished is kept.</p>${why}${how}`,
  send: (values) => sent(d, page, 'pause', values, `${d.s.session_id} pauses.`),
});

const cancel = (d, page) => page.ask({
  title: `Cancel ${d.s.session_id}`, say: 'Cancel the session', isBad: true,
  body: () => html`<p class="dim">It ends permanently at the next safe point, with its children. Its history stays readable, and you can fork it.</p>${why}`,
  send: ({ reason = '' }) => sent(d, page, 'cancel', { reason }, `${d.s.session_id} is cancelled.`),
});

export const send = (d, page) => page.ask({
  title: `Send a message to ${d.s.session_id}`, say: 'Send',
  body: () => html`<div class="field"><label for="value">Message</label><textarea class="in" id="value" name="value" rows="4" required></textarea><span
    class="hint">JSON, or else text</span></div>`,
  send: ({ value }) => sent(d, page, 'send', { value: lenient(value) }, 'The message is sent.'),
});

const lenient = (text) => { try { return JSON.parse(text); } catch { return text; } };

// resume

function decisions({ undecided = [], replaces = [] } = {}) {
  const open = replaces.filter((each) => each.accepted && !each.decided).map((each) => each.path), files = [...undecided, ...open];
  return files.length ? html`<fieldset class="field"><legend class="label">Edited: ${files.join(', ')}</legend><div class="choices"><label
    class="choice"><input type="radio" name="edits" value="accept" required><span>Accept the edits</span></label><label class="choice"><input type="radio"
      name="edits" value="discard"><span>Discard them</span></label></div></fieldset>` : nothing;
}

function options(d, done) {
  return html`<details class="known"><summary>Options</summary><div class="stack">
    <div class="field"><label for="budget">Budget in USD</label><input class="in" id="budget" name="budget_usd" type="number" min="0" step="any"
      placeholder=${d.s.budget_usd ?? 'no limit'}></div>
    ${done.length ? html`<fieldset class="field"><legend class="label">Run finished steps again</legend>${done.slice(0, ROWS).map((each) =>
      html`<label class="check"><input type="checkbox" name="rerun:${each.step}"><span class="mono">${each.step}</span></label>`)}</fieldset>` : nothing}
    <label class="check"><input type="checkbox" name="code"><span>Accept changed code<br><span
      class="hint">If the workflow's code has changed since the session ran</span></span></label></div></details>`;
}

const rerun = (values) => Object.keys(values).filter((name) => name.startsWith('rerun:') && values[name]).map((name) => name.slice(6));

const BLIND = html`<p class="dim">This server does not have the code of the workflow, so it cannot show a plan.
  A resume closes the pauses; an engine that drives the workflow then continues the session.</p>`;

export async function resume(d, page, wake = false) {
  const asked = { verb: 'resume', rerun: [] };
  const plan = d.planRefused ? null : await post(of(d.s.session_id) + '/plan', asked).catch(() => null);  // files may have been edited since
  const done = plan?.steps.filter((each) => each.visits && each.verdict === 'done') ?? [];
  page.ask({
    title: `${wake ? 'Wake' : 'Resume'} ${d.s.session_id}`, say: wake ? 'Wake now' : 'Resume',
    body: () => html`${wake ? html`<p class="dim">Its timer ends now.</p>` : decisions(plan ?? undefined)}${wake || d.planRefused ? nothing :
      options(d, done)}`,
    plan: async (values) => d.planRefused ? BLIND : preview(d, { ...asked, rerun: rerun(values) }),
    send: async (values) => {
      const { edits, budget_usd, code } = values;
      await sent(d, page, 'resume', { wake, rerun: rerun(values), ...(edits && { edits }), ...(budget_usd && { budget_usd: Number(budget_usd) }),
        ...(code && { code: 'accept' }) }, wake ? 'Woken.' : `${d.s.session_id} is resumed.`);
    },
  });
}

// rewind and fork

const option = (value, text, isChosen) => html`<option value=${value} ?selected=${isChosen}>${text}</option>`;

function places(d, withPast) {
  const points = [...d.points].reverse(), open = d.s.step && !d.s.held_by_guard && !d.before ? [[`${d.s.step}#${d.s.visit}`, `${at(d.s)} (the open visit)`]]
    : [];
  return [...open, ...points.filter((each) => withPast || !each.left_behind).map((each) =>
    [each.left_behind ? each.seq : each.name, `${each.name} (record ${each.seq}${each.left_behind ? ', undone by a rewind' : ''})`])].slice(0, ROWS);
}

const place = (value) => /^\d+$/.test(value) ? Number(value) : value;

const changes = html`<details class="known"><summary>Change fields</summary><div class="field"><label for="changes">Changes</label><textarea class="in mono"
  id="changes" name="changes" rows="3" placeholder='{"topic": "squid"}'></textarea><span class="hint">As JSON: field and new value</span></div></details>
  <label class="check"><input type="checkbox" name="reuse"><span>Reuse results<br><span
    class="hint">Operations and steps with the same input do not run again</span></span></label>`;

function changed({ changes: text, reuse }) {
  try {
    return { reuse, ...(text ? { changes: JSON.parse(text) } : {}) };
  } catch (error) {
    throw new Problem(400, { detail: `The changes are not JSON: ${error.message}. Correct them.` });
  }
}

function rewind(d, page) {
  const found = places(d, false), chosen = d.points.find((each) => String(each.seq) === d.query.get('at') && !each.left_behind)?.name ?? found[0]?.[0];
  page.ask({
    title: `Rewind ${d.s.session_id}`, say: found.length ? 'Rewind' : '',
    body: () => found.length ? html`<div class="field"><label for="to">To before</label><select class="in" id="to"
      name="to">${found.map(([value, text]) => option(value, text, value === chosen))}</select><span
        class="hint">Nothing is deleted: visits that are undone stay readable. The session is ready then; resume it to run.</span></div>${changes}${why}` :
          html`<p class="dim">No visit has begun, so there is nothing to rewind.</p>`,
    plan: async (values) => values.to ? preview(d, { verb: 'rewind', to: place(values.to), ...changed(values) }) : nothing,
    send: guarded(d, page, ({ to, reason = '', ...values }, headers) =>
      sent(d, page, 'rewind', { to: place(to), reason, ...changed(values) }, `${d.s.session_id} is rewound.`, headers)),
  });
}

function fork(d, page) {
  const from = (values) => values.at ? { at: place(values.at) } : {};
  page.ask({
    title: `Fork ${d.s.session_id}`, say: 'Fork',
    body: () => html`<p class="dim">A new session with this one's past. This one does not change.</p>
      <div class="field"><label for="at">From</label><select class="in" id="at" name="at"><option
        value="">now</option>${places(d, true).map(([value, text]) => option(value, `before ${text}`))}</select></div>
      <div class="field"><label for="new-id">Id of the new session <span class="dim">optional</span></label><input class="in mono" id="new-id"
        name="session_id" maxlength="128" autocomplete="off"></div>${changes}
      <label class="check"><input type="checkbox" name="paused" checked><span>Leave it paused<br><span
        class="hint">Otherwise it runs at once</span></span></label>${why}`,
    plan: (values) => preview(d, { verb: 'fork', ...from(values), ...changed(values) }),
    send: async ({ session_id, paused, reason = '', ...values }) => {
      const found = await post(of(d.s.session_id) + '/fork', { ...from(values), paused, reason, ...changed(values), ...(session_id && { session_id }) });
      tell(told(`${found.session_id} is forked.`, found));
      page.go(`#/sessions/${encodeURIComponent(found.session_id)}`);
    },
  });
}

// edit

// A value that may be an object or null, or one of several kinds, and a long list are edited as JSON.
const isMixed = ({ anyOf, oneOf }) => (anyOf ?? oneOf ?? []).filter((each) => each.type !== 'null').some((each, n) => n ||
  !['string', 'integer', 'number', 'boolean'].includes(each.type));
const isFree = ({ type, $ref, enum: known, anyOf, oneOf }) => !type && !$ref && !known && !anyOf && !oneOf;
const edited = (schema, value) => isMixed(schema) || isFree(schema) || value?.length > ITEMS && Array.isArray(value) ?
  { title: schema.title, description: schema.description, type: 'object' } : schema;

// The schema of the state with the present values. Large fields are left out.
function filled(schema, values) {
  const small = Object.fromEntries(Object.entries(values).filter(([, value]) => !(value instanceof Large)));
  if (!schema?.properties) return { type: 'object', default: small };
  return { ...schema, default: small, required: Object.keys(small), properties:
    Object.fromEntries(Object.entries(schema.properties).filter(([name]) => name in small).map(([name, each]) => [name, edited(each, small[name])])) };
}

const differs = (before, after) => Object.fromEntries(Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])));

// What another person or the session itself has changed since the form was drawn.
const news = (former, present) => html`<div class="note bad" role="alert"><div><p>The state has changed meanwhile, so nothing was written.
  What you typed is still here. Compare it with what is new, then save again:</p>
  <dl class="kv">${Object.entries(differs(former, present)).map(([name, value]) =>
    html`<dt>${name}</dt><dd><span class="was">${shown(former[name]) ?? ''}</span> <span
      class="is">${value instanceof Large ? '(large)' : shown(value)}</span></dd>`)}</dl></div></div>`;

class Edit {
  constructor(d, page, values) {
    Object.assign(this, { d, page, values, id: `edit-${d.s.session_id}-${d.s.seq}`, schema: filled(d.s.description.state, values), seen: d.s.etag, refusal:
      null, news: nothing });
  }

  get form() { return document.querySelector('dialog form'); }
  read() { return readValue(this.id, this.schema, this.form); }

  // Only fields that the person has changed are sent, so a value that the form cannot show stays as it is.
  fields() {
    try {
      const found = this.read(), cleared = Object.keys(this.drawn).filter((name) => !(name in found));
      return { ...differs(this.drawn, found), ...Object.fromEntries(cleared.map((name) => [name, typeof this.drawn[name] === 'string' ? '' : null])) };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      throw new Problem(400, { detail: error.message, field: error.field });
    }
  }

  // The complaint stands beside its field; what is thrown is shown above the buttons.
  mark(problem) {
    this.refusal = problem?.field ? { text: problem.message, field: problem.field } : null;
    this.page.draw();
    return this.refusal ? new Problem(problem.status, { detail: 'Correct the marked field, then save again.' }) : problem;
  }

  async plan() {
    this.drawn ??= this.read();
    try {
      const fields = this.fields();
      if (!Object.keys(fields).length) return html`<p class="dim">Change a field to see what a resume would do then.</p>`;
      const found = await preview(this.d, { verb: 'edit', fields });
      this.mark(null);
      return found;
    } catch (problem) {
      throw this.mark(problem);
    }
  }

  async send({ reason = '' }) {
    const { d, page } = this;
    try {
      const fields = this.fields();
      if (!Object.keys(fields).length) throw new Problem(400, { detail: 'No field is changed. Change one, then save it.' });
      await sent(d, page, 'edit', { fields, reason }, `Changed ${Object.keys(fields).join(', ')}.`, { 'if-match': this.seen });
    } catch (problem) {
      throw problem.status === 412 && problem.present ? await this.late(problem) : this.mark(problem);
    }
    forget(this.id);
  }

  async late(problem) {
    const values = await read(this.d.s.session_id);
    this.news = news(this.values, values);
    Object.assign(this, { seen: problem.present.etag, values });
    return this.mark(new Problem(412, { detail: 'The state has changed meanwhile. See above.' }));
  }

  body() {
    const large = Object.keys(this.values).filter((name) => this.values[name] instanceof Large);
    return html`${this.news}<div class="f">${drawn(this.id, this.schema, this.refusal, () => this.page.draw())}</div>${large.length ?
      html`<p class="small dim">Too large to edit here: ${large.join(', ')}.</p>` : nothing}${why}`;
  }
}

export async function edit(d, page) {
  const dialog = new Edit(d, page, await read(d.s.session_id));
  page.ask({ title: `Edit ${d.s.session_id}`, say: 'Save', isForm: true, body: () => dialog.body(), plan: () => dialog.plan(), send: (given) =>
    dialog.send(given) });
}

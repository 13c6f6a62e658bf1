// Start a session, with a form that follows the schema of the workflow's state. What the steps write is folded.
import { html } from './marks.js';
import { get, of, post } from './api.js';
import { counted } from './words.js';
import { drawn, forget, readValue } from './form.js';
import { tell } from './toast.js';

const KEY = 'start', MORE = 'start-more', OPTIONS = 'start-options';

export const title = () => 'Start a session';

let refusal = null, first;  // of what was sent; the folded values as they were drawn

export async function load({ query }, page) {
  const { workflows } = await get('/workflows'), known = workflows.filter((each) => each.version), only = known.length === 1 ? known[0].name : '';
  const name = query.get('workflow') || only, description = name && await get(`/workflows/${encodeURIComponent(name)}`);
  if (page.data?.name !== name) {
    for (const each of [KEY, MORE, OPTIONS]) forget(each);
    [refusal, first] = [null, undefined];
  }
  return { workflows: known, name, description };
}

// A form that a person fills in is not read again with every event.
export const live = (name) => name !== 'reset';

// What a person gives, and what the steps write.
function parts({ state, steps, returns }) {
  const written = new Set([...steps.flatMap((each) => each.writes.map((path) => path.split('.')[0])), returns]), given = Object.entries(state?.properties ?? {});
  const isFolded = (name) => written.has(name) && !state.required?.includes(name);
  const some = (folded) => ({ ...state, properties: Object.fromEntries(given.filter(([name]) => isFolded(name) === folded).map(([name, each]) => [name, known(each)])) });
  return { inputs: some(false), folded: some(true) };
}

// A field of any type is asked for as JSON, or else text.
const KINDS = ['type', '$ref', 'anyOf', 'oneOf', 'enum', 'const', 'allOf'];
const isAny = (schema) => !KINDS.some((name) => name in schema);
const known = (schema) => schema.allOf?.length === 1 ? { ...schema.allOf[0], ...schema, allOf: undefined } : isAny(schema) ? { ...schema, description: joined(schema) } : schema;
const joined = ({ description }) => [description, 'JSON, or else text'].filter(Boolean).join('. ');
const lenient = (text) => { try { return JSON.parse(text); } catch { return text; } };
const values = (found, { properties }) => Object.fromEntries(Object.entries(found ?? {}).map(([name, value]) =>
  [name, typeof value === 'string' && isAny(properties[name]) ? lenient(value) : value]));

const text = (title, description) => ({ type: 'string', title, description, maxLength: 120 });
const count = (title) => ({ type: 'integer', title, minimum: 0 });

function options({ steps }, page) {
  const publishes = steps.flatMap((each) => each.publishes).map(({ path }) => path), seesAll = !page.me.owner;
  const folder = { ...text('Folder for its artifacts', `For ${publishes.join(', ')}. Relative to the folder in which the server was started, such as reports/may`), maxLength: undefined };
  return {
    needed: { type: 'object', properties: publishes.length ? { folder } : {}, required: ['folder'] },
    more: { type: 'object', properties: {
      session_id: text('Id', 'By default a random one'), ...(seesAll && { owner: text('Owner') }),
      tags: text('Tags', 'Separated by spaces'), budget_usd: { type: 'number', title: 'Budget in USD', minimum: 0 },
      budget_tokens: count('Budget in tokens'), budget_operations: count('Budget in operations'),
      ...(seesAll && { queue: text('Queue'), priority: { type: 'integer', title: 'Priority', description: 'The lowest number goes first' }, lane: text('Lane') }),
      paused: { type: 'boolean', title: 'Leave it paused' }, reason: text('Why'),
    } },
  };
}

const differs = (before, after) => Object.fromEntries(Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])));
const present = (given) => Object.fromEntries(Object.entries(given ?? {}).filter(([, value]) => value !== '' && value != null && value !== false));

async function send(event, d, page) {
  event.preventDefault();
  const form = event.target, { inputs, folded } = parts(d.description), { needed, more } = options(d.description, page), button = form.querySelector('.go');
  button.disabled = true;
  refusal = null;
  try {
    const changed = differs(first, values(readValue(MORE, folded, form), folded));
    const { tags, ...given } = present({ ...readValue(OPTIONS, more, form), ...readValue(OPTIONS, needed, form) });
    const found = await post('/sessions', { workflow: d.name, input: { ...values(readValue(KEY, inputs, form), inputs), ...changed }, ...given,
      tags: tags?.split(/\s+/).filter(Boolean) });
    tell([`${found.session_id} is started.`, ...(found.drivers ?? []).map((each) => each.advice)].join(' '));
    page.go('#' + of(found.session_id));
  } catch (problem) {
    if (!problem.message) throw problem;
    refusal = { text: problem.message, field: problem.field };
    button.disabled = false;
    page.draw();
    document.querySelector('main .err, main [role=alert]')?.scrollIntoView({ block: 'center' });
  }
}

function fields(d, page) {
  const { description } = d, { inputs, folded } = parts(description), { needed, more } = options(description, page), redraw = () => page.draw();
  const draw = (key, schema) => Object.keys(schema.properties).length ? html`<div class="f">${drawn(key, schema, refusal, redraw)}</div>` : '';
  const place = refusal?.field?.split(/[.[]/)[0], isShown = [inputs, folded, needed, more].some(({ properties }) => place in properties);
  requestAnimationFrame(() => {
    const form = document.querySelector('form.start');
    if (form) first ??= values(readValue(MORE, folded, form), folded);
  });
  return html`<form class="f start" novalidate @submit=${(event) => send(event, d, page)}>
    ${description.state ? '' : html`<p class="note">The schema of this workflow is not known here. An engine with its code describes it.</p>`}
    ${Object.keys(inputs.properties).length ? draw(KEY, inputs) : html`<p class="dim">It needs no input.</p>`}${draw(OPTIONS, needed)}
    ${Object.keys(folded.properties).length ? html`<details class="known"><summary>Fields that the steps write</summary>${draw(MORE, folded)}</details>` : ''}
    <details class="known" ?open=${place in more.properties}><summary>Options</summary>${draw(OPTIONS, more)}</details>
    ${refusal && !isShown ? html`<p class="err" role="alert">${refusal.text}</p>` : ''}
    ${refusal && isShown ? html`<p class="err" role="alert">Nothing was started. Correct the marked field.</p>` : ''}
    <div><button class="b main go">Start</button></div></form>`;
}

const driven = ({ drives, engines }) => drives || engines.length ? '' : html`<p class="note">No open engine drives this workflow. The session waits until one does.</p>`;

export function view(d, page) {
  const { workflows, name, description } = d;
  return html`<div class="top"><h1>Start a session</h1></div><section class="sheet pad stack new" aria-label="New session"><label class="field">Workflow<select class="in" name="workflow"
    @change=${({ target }) => page.go(`#/start?workflow=${encodeURIComponent(target.value)}`, true)}><option value="" ?selected=${!name}>Choose one</option>${workflows.map((each) =>
    html`<option value=${each.name} ?selected=${each.name === name}>${each.name}, ${counted(each.steps.length, 'step')}</option>`)}</select></label>
    ${!description ? '' : description.guest ? html`<p class="note">Sessions of this workflow are started by the program that visits them.</p>` : [driven(description), fields(d, page)]}</section>`;
}

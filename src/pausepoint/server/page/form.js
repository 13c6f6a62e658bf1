// A form from a JSON schema. What it does not know is asked for as JSON, so every question can be answered.
//
// The fields are uncontrolled: nothing that is drawn again changes what a person has typed. `read` walks the same schema
// and collects the values. Rows of lists and chosen variants are kept here, by the id of the form and the path.
import { html, nothing } from './vendor/lit-html.js';

const PILLS = 6, LONG = 120, DEEP = 5;
const rows = new Map(), variants = new Map();

export class Unreadable extends Error {
  constructor(field, text) { super(text); this.field = field; }
}

// schemas

const pointed = (ref, root) => ref.split('/').slice(1).reduce((found, key) => found?.[key.replaceAll('~1', '/').replaceAll('~0', '~')], root);
const resolve = (schema, root, depth = 0) => schema?.$ref && depth < 20 ? resolve({ ...pointed(schema.$ref, root), ...schema, $ref: pointed(schema.$ref, root)?.$ref }, root, depth + 1) : schema ?? {};

// A schema without its null, and whether it had one.
function plain(given, root) {
  const schema = resolve(given, root);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) {
    const rest = several.map((each) => resolve(each, root)).filter((each) => each.type !== 'null');
    const isOptional = rest.length < several.length;
    if (rest.length === 1) return { ...rest[0], ...schema, ...rest[0], title: schema.title ?? rest[0].title, description: schema.description ?? rest[0].description, default: schema.default ?? rest[0].default, anyOf: undefined, oneOf: undefined, isOptional };
    return { ...schema, several: rest, isOptional };
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== 'null');
    return { ...schema, type: types.length === 1 ? types[0] : undefined, isOptional: types.length < schema.type.length };
  }
  return schema;
}

// The schema of one member. The default of an object has the defaults of its members.
function member(schema, name, root) {
  const found = plain(schema.properties[name], root), given = schema.default?.[name];
  return given === undefined ? found : { ...found, default: given };
}

const isScalar = (schema) => ['string', 'integer', 'number'].includes(schema.type) || Boolean(schema.enum);

const isLong = (text) => typeof text === 'string' && (text.length > LONG || text.includes('\n'));

function kind(schema, depth) {
  if (schema.enum || schema.const !== undefined) return 'choice';
  if (schema.several) return depth < DEEP ? 'variants' : 'json';
  if (schema.type === 'boolean') return 'boolean';
  if (schema.type === 'object' && schema.properties && depth < DEEP) return 'group';
  if (schema.type === 'array' && depth < DEEP && schema.items && !schema.prefixItems) return 'list';
  if (schema.type === 'string') return (schema.maxLength ?? 0) > LONG || schema.format === 'markdown' || isLong(schema.default) ? 'long' : 'line';
  return ['integer', 'number'].includes(schema.type) ? 'line' : schema.type ? 'json' : 'free';
}

// The schema of an answer. Choices without a schema are an enum; without both, any text.
function whole(q) {
  const schema = q.answer_schema ?? (q.choices ? { enum: q.choices } : {});
  return { ...schema, default: q.default ?? schema.default };
}

// drawing

const words = (name) => { const text = name.replaceAll('_', ' '); return text[0].toUpperCase() + text.slice(1); };
const titled = (name, schema) => schema.title && schema.title.toLowerCase() !== name.toLowerCase() && !/^[A-Z][a-z]+(\s[A-Z][a-z]+)*$/.test(schema.title) ? schema.title : words(name);

class Form {
  constructor(id, root, refusal, redraw) { Object.assign(this, { id, root, refusal, redraw }); }

  // The fields of an object, without a frame of their own.
  members(schema, path, depth) {
    const required = schema.required ?? [];
    return Object.entries(schema.properties).map(([name, each]) => this.field(join(path, name), titled(name, each), member(schema, name, this.root), required.includes(name), depth + 1));
  }

  field(path, title, schema, isRequired, depth) {
    const it = { path, title, schema, isRequired: isRequired && !schema.isOptional, depth, id: `${this.id}-${path || 'value'}`, error: this.complaint(path) };
    return this[kind(schema, depth)](it);
  }

  complaint(path) {
    const at = this.refusal?.field;
    return at === path || (at && at.replace(/\[(\d+)\]/g, '.$1') === path) ? this.refusal.text : undefined;
  }

  head({ id, title, isRequired }) {
    return title ? html`<label for=${id}>${title}${isRequired ? nothing : html` <span class="dim">optional</span>`}</label>` : nothing;
  }

  tail({ id, schema, error }) {
    return html`${schema.description ? html`<span class="hint" id="${id}-hint">${schema.description}</span>` : nothing}${error ? html`<span class="err" id="${id}-error" role="alert">${error}</span>` : nothing}`;
  }

  legend({ title, isRequired }) {
    return html`<legend class="label ${title ? '' : 'unseen'}">${title || 'Answer'}${title && !isRequired ? html` <span class="dim">optional</span>` : nothing}</legend>`;
  }

  about({ id, schema, error }) { return [schema.description && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || nothing; }

  choice(it) {
    const options = it.schema.enum ?? [it.schema.const], chosen = JSON.stringify(it.schema.default);
    if (options.length <= PILLS) return html`<fieldset class="field">${this.legend(it)}<div class="choices">${options.map((option) => html`<label class="choice"><input type="radio" name=${it.id} value=${JSON.stringify(option)} ?checked=${JSON.stringify(option) === chosen} ?required=${it.isRequired}><span>${text(option)}</span></label>`)}</div>${this.tail(it)}</fieldset>`;
    return html`<div class="field">${this.head(it)}<select class="in" id=${it.id} name=${it.id} ?required=${it.isRequired} aria-label=${it.title ? nothing : 'Answer'} aria-describedby=${this.about(it)}><option value=""></option>${options.map((option) => html`<option value=${JSON.stringify(option)} ?selected=${JSON.stringify(option) === chosen}>${text(option)}</option>`)}</select>${this.tail(it)}</div>`;
  }

  boolean(it) {
    const { id, title, schema } = it;
    return html`<div class="field"><label class="check"><input type="checkbox" id=${id} name=${id} ?checked=${schema.default === true} aria-describedby=${this.about(it)}><span>${title || 'Yes'}</span></label>${this.tail(it)}</div>`;
  }

  line(it) {
    const { id, title, schema, isRequired, error } = it;
    const types = { email: 'email', uri: 'url', date: 'date', 'date-time': 'datetime-local', time: 'time' };
    const type = schema.type === 'string' ? schema.writeOnly ? 'password' : types[schema.format] ?? 'text' : 'number';
    return html`<div class="field">${this.head(it)}<input class="in" id=${id} name=${id} type=${type} step=${type === 'number' ? schema.multipleOf ?? (schema.type === 'integer' ? 1 : 'any') : nothing} min=${schema.minimum ?? nothing} max=${schema.maximum ?? nothing} minlength=${schema.minLength || nothing} maxlength=${schema.maxLength ?? nothing} ?required=${isRequired && schema.minLength !== 0} aria-label=${title ? nothing : 'Answer'} aria-describedby=${this.about(it)} aria-invalid=${error ? 'true' : nothing} value=${schema.default ?? ''} autocomplete="off">${this.tail(it)}</div>`;
  }

  long(it, isCode = false) {
    const { id, title, schema, isRequired, error } = it;
    const given = schema.default === undefined || schema.default === null ? '' : isCode ? JSON.stringify(schema.default, null, 2) : schema.default;
    return html`<div class="field">${this.head(it)}<textarea class="in ${isCode ? 'mono' : ''}" id=${id} name=${id} rows="4" ?required=${isRequired} maxlength=${schema.maxLength ?? nothing} aria-label=${title ? nothing : 'Answer'} aria-describedby=${this.about(it)} aria-invalid=${error ? 'true' : nothing} .defaultValue=${given}></textarea>${isCode ? html`<span class="hint">As JSON</span>` : nothing}${this.tail(it)}</div>`;
  }

  free(it) { return this.long(it); }
  json(it) { return this.long(it, true); }

  group(it) {
    return html`<fieldset class="group">${this.legend(it)}${this.tail(it)}${this.members(it.schema, it.path, it.depth)}</fieldset>`;
  }

  variants(it) {
    const { id, schema } = it, chosen = variants.get(id) ?? 0;
    const pick = (event) => { variants.set(id, +event.target.value); this.redraw(); };
    const name = (each, n) => each.title ?? each.const ?? each.type ?? `Form ${n + 1}`;
    return html`<fieldset class="group">${this.legend(it)}<div class="field"><label for="${id}-which" class="unseen">Kind of ${it.title || 'answer'}</label><select class="in" id="${id}-which" @change=${pick}>${schema.several.map((each, n) => html`<option value=${n} ?selected=${n === chosen}>${name(each, n)}</option>`)}</select></div>
      ${schema.several.map((each, n) => n === chosen ? this.field(it.path, '', plain(each, this.root), it.isRequired, it.depth + 1) : nothing)}</fieldset>`;
  }

  list(it) {
    const { id, path, schema, depth } = it, items = plain(schema.items, this.root), given = Array.isArray(schema.default) ? schema.default : [];
    const count = rows.get(id) ?? Math.max(given.length, schema.minItems ?? 0, isScalar(items) ? 1 : 0);
    const set = (n) => { rows.set(id, n); this.redraw(); };
    return html`<fieldset class="group">${this.legend(it)}${this.tail(it)}
      ${Array.from({ length: count }, (_, n) => this.field(join(path, n), `${n + 1}.`, { ...items, default: given[n] ?? items.default, isOptional: isScalar(items) && n >= (schema.minItems ?? 0) }, true, depth + 1))}
      <div class="row"><button class="b tiny" type="button" ?disabled=${count >= (schema.maxItems ?? 100)} @click=${() => set(count + 1)}>Add one</button>${count > (schema.minItems ?? 0) ? html`<button class="b tiny quiet" type="button" @click=${() => set(count - 1)}>Remove the last</button>` : nothing}</div></fieldset>`;
  }
}

const join = (path, name) => path === '' ? String(name) : `${path}.${name}`;
const text = (option) => typeof option === 'string' ? option : JSON.stringify(option);
const ids = (q) => `q-${q.id}`;

// Draw the fields of any schema. `refusal` is { text, field } of what the server refused.
export function drawn(id, schema, refusal, redraw, required = true) {
  const form = new Form(id, schema, refusal, redraw), all = plain(schema, schema);
  return kind(all, 0) === 'group' ? form.members(all, '', 0) : form.field('', '', all, required, 0);
}

export function fields(q, refusal, redraw) {
  if (q.kind === 'confirm') return html`<div class="field"><label for="${ids(q)}-reason">Reason <span class="dim">if the answer is no</span></label><input class="in" id="${ids(q)}-reason" name="reason" autocomplete="off"></div>`;
  return drawn(ids(q), whole(q), refusal, redraw);
}

// reading

const MISSING = Symbol('missing');

class Reader {
  constructor(id, root, form) { Object.assign(this, { id, root, form }); }

  value(path, schema, depth) {
    const name = `${this.id}-${path || 'value'}`, input = this.form.elements[name];
    switch (kind(schema, depth)) {
      case 'group': return this.members(schema, path, depth);
      case 'variants': return this.value(path, plain(schema.several[variants.get(name) ?? 0], this.root), depth + 1);
      case 'list': return this.list(schema, path, depth, name);
      case 'choice': return input?.value ? JSON.parse(input.value) : MISSING;
      case 'boolean': return input.checked;
      case 'json': return input.value.trim() ? this.parsed(path, input.value) : MISSING;
      case 'line': return this.line(schema, input);
      default: return input.value === '' && schema.isOptional ? MISSING : input.value;
    }
  }

  line(schema, input) {
    if (schema.type !== 'string') return input.value === '' ? MISSING : Number(input.value);
    if (input.value === '' && (schema.isOptional || !input.required)) return schema.isOptional || schema.format ? MISSING : '';
    return schema.format === 'date-time' ? new Date(input.value).toISOString() : input.value;
  }

  parsed(path, given) {
    try {
      return JSON.parse(given);
    } catch (error) {
      throw new Unreadable(path, `This is not JSON: ${error.message}. Correct it, then send it again.`);
    }
  }

  members(schema, path, depth) {
    const found = {};
    for (const name of Object.keys(schema.properties)) {
      const each = member(schema, name, this.root), value = this.value(join(path, name), each, depth + 1);
      const isEmpty = value === '' && !(schema.required ?? []).includes(name);
      if (value !== MISSING && !isEmpty) found[name] = value;
      else if (each.isOptional && (schema.required ?? []).includes(name)) found[name] = null;
    }
    return found;
  }

  list(schema, path, depth, name) {
    const items = plain(schema.items, this.root), given = Array.isArray(schema.default) ? schema.default : [];
    const count = rows.get(name) ?? Math.max(given.length, schema.minItems ?? 0, isScalar(items) ? 1 : 0);
    const found = Array.from({ length: count }, (_, n) => this.value(join(path, n), items, depth + 1));
    return found.filter((value) => value !== MISSING && value !== '');
  }
}

// Read what `drawn` has drawn. Raises `Unreadable` for text that is not JSON.
export function readValue(id, schema, form) {
  const found = new Reader(id, schema, form).value('', plain(schema, schema), 0);
  return found === MISSING ? null : found;
}

export function read(form, q, approved) {
  if (q.kind === 'confirm') return { approved, reason: form.elements.reason?.value ?? '' };
  return readValue(ids(q), whole(q), form);
}

// Forget the rows and variants of a form that was sent.
export function forget(id) {
  for (const kept of [rows, variants]) for (const name of kept.keys()) if (name.startsWith(`${id}-`)) kept.delete(name);
}

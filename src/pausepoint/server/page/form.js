// A form from a JSON schema; what it does not know is asked for as JSON. The fields are uncontrolled, so nothing that is
// drawn again changes what a person has typed. One walk over the parts of the schema draws the form and reads it.
import { html } from './marks.js';
import { Problem } from './api.js';
import { shown } from './words.js';

const PILLS = 6, LONG = 120, DEEP = 5;
const MOMENT = 'date-time', TYPES = { [MOMENT]: 'datetime-local' };
const chosen = new Map();  // id of a part → the number of rows of a list, or of the variant

export class Unreadable extends Problem {
  constructor(field, detail) { super(400, { field, detail }); }
}

// A schema without references and null. `several` are its variants.
function plain(given, root) {
  const { $ref, anyOf, oneOf, type, ...schema } = given ?? {};
  if ($ref) return plain({ ...$ref.split('/').slice(1).reduce((found, key) => found?.[key], root), ...schema }, root);
  const all = anyOf ?? oneOf ?? (Array.isArray(type) && type.map((each) => ({ type: each })));
  if (!all) return { ...schema, type };
  const several = all.map((each) => plain(each, root)).filter((each) => each.type !== 'null');
  return { ...(several.length === 1 ? several[0] : { several }), ...schema, isOptional: several.length < all.length };
}

function kindOf({ type, several, properties, items, prefixItems, ...schema }, path) {
  if (schema.enum || schema.const !== undefined) return 'choice';
  if (!several && type !== 'object' && type !== 'array') return type === 'boolean' ? 'check' : 'text';
  return path.split('.').length > DEEP ? 'json' : several ? 'variants' : properties ? 'group' : items && !prefixItems ? 'list' : 'json';
}

function part(form, path, given, preset, isRequired, more) {
  const found = plain(given, form.root), schema = preset === undefined ? found : { ...found, default: preset };
  return { form, path, schema, id: `${form.id}-${path}`, kind: kindOf(schema, path), isNeeded: isRequired && !schema.isOptional, ...more };
}

const fits = ({ type }, value) => type === (Array.isArray(value) ? 'array' : typeof value) || (type === 'integer' && Number.isInteger(value));
const variant = ({ id, schema }) => chosen.get(id) ?? Math.max(0, schema.several.findIndex((each) => fits(each, schema.default)));
const count = ({ id, schema }) => chosen.get(id) ?? Math.max(schema.default?.length ?? 0, schema.minItems ?? 0);

// The parts of an object, of a list, or the chosen variant. A default has the defaults of the parts.
function parts(it) {
  const { form, path, schema, kind, isNeeded } = it, preset = schema.default;
  const inner = (name, given, isRequired, title) =>
    part(form, path ? `${path}.${name}` : String(name), given, preset?.[name], isRequired, { name, title });
  if (kind === 'list') return Array.from({ length: count(it) }, (_, n) => inner(n, schema.items, true, `${n + 1}.`));
  if (kind === 'group') return Object.entries(schema.properties).map(([name, given]) =>
    inner(name, given, isNeeded && schema.required?.includes(name), given.title ?? name[0].toUpperCase() + name.slice(1)));
  const one = schema.several[variant(it)];
  return [part(form, path, one, fits(one, preset) ? preset : undefined, isNeeded)];
}

// drawing

// The server complains about one field, or about several in one text: "nights: too many; address.city: missing".
function complaint({ form: { refusal }, path, kind }) {
  const { text = '', field } = refusal ?? {}, isOurs = (each) => each.startsWith(`${path}: `) || (kind === 'json' && each.startsWith(`${path}.`));
  return field === path ? text : path && text.split('; ').find(isOurs)?.replace(`${path}: `, '');
}

const members = (it) => parts(it).map((each) => DRAW[each.kind](each));
const bare = (it) => it.kind === 'group' ? members(it) : DRAW[it.kind](it);

function choose({ form, id }, n) {
  chosen.set(id, n);
  form.redraw();
}

const said = (text, style) => text ? html`<span class=${style}>${text}</span>` : '';

function labelled(it, control, frame) {
  const title = html`${it.title ?? 'Answer'} ${said(!it.isNeeded && 'optional', 'dim')}`, style = `label ${it.title ? '' : 'unseen'}`;
  const rest = html`${control}${said(it.schema.description, 'hint')}${said(complaint(it), 'err')}`;
  return frame ? html`<fieldset class=${frame}><legend class=${style}>${title}</legend>${rest}</fieldset>` :
    html`<label class="field"><span class=${style}>${title}</span>${rest}</label>`;
}

// A moment in the reader's own time zone, as the browser's field takes it.
function local(moment) {
  const when = new Date(moment);
  return new Date(when - when.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function text(it) {
  const { type, format, minLength, maxLength, default: preset, ...schema } = it.schema, isJson = it.kind === 'json', needed = it.isNeeded && minLength !== 0;
  if (isJson || !type || (maxLength ?? preset?.length) > LONG || /\n/.test(preset)) return labelled(it, html`<textarea class="in ${isJson ? 'mono' : ''}"
    name=${it.id} ?required=${needed} maxlength=${maxLength} placeholder=${isJson ? 'JSON' : ''} .defaultValue=${shown(preset ?? '')}></textarea>`);
  return labelled(it, html`<input class="in" name=${it.id} type=${type === 'string' ? TYPES[format] ?? format ?? 'text' : 'number'} ?required=${needed} min=${schema.minimum}
    max=${schema.maximum} minlength=${minLength} maxlength=${maxLength} step=${type === 'number' ? 'any' : ''} placeholder=${format} value=${format === MOMENT && preset ? local(preset) : preset ?? ''}
    autocomplete="off">`);
}

const DRAW = {
  text, json: text,
  group: (it) => labelled(it, members(it), 'group'),
  check: (it) => labelled({ ...it, title: '', isNeeded: true }, html`<span class="check"><input type="checkbox" name=${it.id}
    ?checked=${it.schema.default}>${it.title ?? 'Yes'}</span>`),

  choice(it) {
    const { id, schema, isNeeded } = it, preset = JSON.stringify((schema.type === 'string' && schema.const) || schema.default);
    const each = (draw) => (schema.enum ?? [schema.const]).map((option) => draw(JSON.stringify(option), shown(option)));
    if (schema.enum?.length > PILLS) return labelled(it, html`<select class="in" name=${id} ?required=${isNeeded}><option value=""></option>${each(
      (value, name) => html`<option value=${value} ?selected=${value === preset}>${name}</option>`)}</select>`);
    return labelled(it, html`<div class="choices">${each((value, name) => html`<label class="choice"><input type="radio" name=${id} value=${value}
      ?checked=${value === preset} ?required=${isNeeded}><span>${name}</span></label>`)}</div>`, 'field');
  },

  variants: (it) => labelled(it, html`<select class="in" aria-label="Kind" @change=${(event) => choose(it, event.target.selectedIndex)}>${it.schema.several.map(
    (each, n) => html`<option ?selected=${n === variant(it)}>${each.title ?? each.const ?? each.type}</option>`)}</select>${bare(parts(it)[0])}`, 'group'),

  list(it) {
    const { minItems = 0, maxItems = 100 } = it.schema, button = (name, n) => html`<button class="b tiny" type="button"
      ?disabled=${n < minItems || n > maxItems} @click=${() => choose(it, n)}>${name}</button>`;
    return labelled(it, html`${members(it)}<div class="row">${button('Add one', count(it) + 1)}${button('Remove the last', count(it) - 1)}</div>`, 'group');
  },
};

// Draw the fields of any schema. `refusal` is { text, field } of what the server refused.
export const drawn = (id, schema, refusal, redraw) => bare(part({ id, root: schema, refusal, redraw }, '', schema, undefined, true));

// reading: what is missing is undefined

const READ = {
  choice: (it, given) => given ? JSON.parse(given) : undefined,
  check: (it, given) => given !== null,
  variants: (it) => read(parts(it)[0]),
  list: (it) => parts(it).map(read).filter((value) => (value ?? '') !== ''),

  // An object that may be missing is missing if none of its required members is there.
  group(it) {
    const found = parts(it).map((each) => [each.name, read(each) ?? (each.schema.isOptional ? null : undefined)]).filter(([, value]) => value !== undefined);
    const { required } = it.schema;
    return it.isNeeded || !required || found.some(([name]) => required.includes(name)) ? Object.fromEntries(found) : undefined;
  },

  json({ path }, given) {
    try {
      return given.trim() ? JSON.parse(given) : undefined;
    } catch (error) {
      throw new Unreadable(path, `This is not JSON: ${error.message}. Correct it, then send it again.`);
    }
  },

  // An empty text is a value only where it must be one, or where it replaces another.
  text({ schema: { type = 'string', format, isOptional, default: preset }, isNeeded }, given) {
    if (!given) return type === 'string' && !isOptional && !format && (isNeeded || preset != null) ? '' : undefined;
    return format === MOMENT ? new Date(given).toISOString() : type === 'string' ? given : Number(given);
  },
};

const read = (it) => READ[it.kind](it, it.form.given.get(it.id));

// Read what `drawn` has drawn. Raises `Unreadable` for text that is not JSON.
export const readValue = (id, schema, element) => read(part({ id, root: schema, given: new FormData(element) }, '', schema, undefined, true)) ?? null;

// Forget the rows and variants of a form that was sent.
export function forget(id) {
  for (const name of chosen.keys()) if (name.startsWith(`${id}-`)) chosen.delete(name);
}

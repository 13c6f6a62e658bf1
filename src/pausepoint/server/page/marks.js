// Text of strangers: what a browser would obey or hide is drawn as a mark. The table is that of model/marks.py.
import { html as template } from './vendor/lit-html.js';

const HIDDEN = '0-8 b-c e-1f 7f-9f ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b 200e-200f 2028-202e 2060-206f 3164 d800-dfff ' +
  'fe00-fe0d feff ffa0 fff0-fffb 1bca0-1bca3 1d173-1d17a e0000-e0fff';
const JOINED = '300-1fff 2190-d7ff e000-10ffff';
const some = (ranges) => `[${ranges.replace(/[0-9a-f]+/g, '\\u{$&}').replaceAll(' ', '')}]`, joiner = some('200c-200d');
const MARKED = new RegExp(`${some(HIDDEN)}|\\r(?!\\n)|(?<!${some(JOINED)})${joiner}|${joiner}(?!${some(JOINED)})`, 'gu');

function mark(char) {
  const code = char.codePointAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? '␡' : `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
}

export const marked = (text) => String(text).replace(MARKED, mark);

// lit's `html`, which marks every text that is read, also in titles and labels. Other attributes keep their values.
const READ = /(?:title|aria-label)=(?:"[^"]*)?$/, texts = new WeakMap();

function readable(strings) {
  let source = '';
  return strings.map((part) => (source += part).lastIndexOf('<') <= source.lastIndexOf('>') || READ.test(source));
}

const drawn = (value) => typeof value === 'string' ? marked(value) : Array.isArray(value) ? value.map(drawn) : value;

export function html(strings, ...values) {
  if (!texts.has(strings)) texts.set(strings, readable(strings));
  const isText = texts.get(strings);
  return template(strings, ...values.map((value, n) => isText[n] ? drawn(value) : value));
}

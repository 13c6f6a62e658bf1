// The plan of one session, with marks. All texts are set as text, never as HTML.

import { get, post, signIn } from './visitor.js';

const $ = (id) => document.getElementById(id);
const SIGN_IN = 'Open the link to your plan. A link ends after some time; `link` prints a new one.';
const OFF = 'There is no connection to the planner. Nothing was saved. Try again later.';
let marks = Promise.resolve();

function tell(text) {
  $('notice').textContent = text;
  $('notice').hidden = !text;
}

function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children.filter((each) => each !== '' && each !== null));
  return made;
}

const soft = (text) => element('p', { className: 'soft', textContent: text });
const minutes = (count) => `${count} min`;
const plain = (items) => element('ul', { className: 'plain' }, ...items.map((each) => element('li', { textContent: each })));

// A part that can be unfolded stays as it is when the plan is drawn again.
function folded(key, title, ...children) {
  const made = element('details', { open: document.querySelector(`details[data-key="${CSS.escape(key)}"]`)?.open ?? false },
    element('summary', {}, title), ...children);
  made.dataset.key = key;
  return made;
}

function box(what, isDone, isFixed, ...children) {
  const input = element('input', { type: 'checkbox', checked: isDone, disabled: isFixed });
  input.dataset.what = what;
  input.addEventListener('change', () => mark(input));
  return element('label', {}, input, element('span', {}, ...children));
}

function row(each) {
  const isSkipped = each.status === 'skipped';
  const head = [each.time, each.course].filter(Boolean).join(' ');
  const text = [
    head && element('span', { className: 'course', textContent: head }), head && element('br'),
    element('span', { className: 'what' }, each.id ? `${each.topic}: ${each.task}` : each.task),
    each.minutes ? element('span', { className: 'soft', textContent: ` · ${minutes(each.minutes)}${isSkipped ? ' · skipped' : ''}` }) : '',
  ];
  const help = each.notes.map(soft);
  if (each.questions.length) {
    const count = each.questions.length === 1 ? '1 question' : `${each.questions.length} questions`;
    help.push(folded(`questions ${each.id}`, `Test yourself: ${count}`, plain(each.questions)));
  }
  return element('li', { className: each.status },
    each.id ? box(each.id, each.status !== 'planned', isSkipped, ...text)
      : element('div', { className: 'row' }, element('span'), element('span', {}, ...text)),
    help.length ? element('div', { className: 'help' }, ...help) : '');
}

function day(each, today) {
  return element('section', { className: each.date === today ? 'card today' : 'card' },
    element('h3', {}, each.date === today ? `Today, ${each.name}` : each.name,
      each.minutes ? element('span', { className: 'soft', textContent: ` ${minutes(each.minutes)}` }) : ''),
    element('ul', {}, ...each.rows.map(row)));
}

function topics(course) {
  return element('section', { className: 'card' }, element('h3', { textContent: course.course }),
    element('ul', {}, ...course.topics.map((each) => {
      const left = each.left && each.left < each.minutes ? `${minutes(each.left)} of ${each.minutes} left` : minutes(each.minutes);
      return element('li', { className: each.left ? '' : 'done' },
        box(each.what, !each.left, false, element('span', { className: 'what', textContent: each.topic }),
          element('span', { className: 'soft', textContent: ` · ${left}` })));
    })));
}

const heading = (text) => element('h2', { textContent: text });

function draw(plan) {
  const focused = document.activeElement?.dataset?.what;
  const before = plan.days.filter((each) => each.date < plan.today), ahead = plan.days.filter((each) => each.date >= plan.today);
  const lists = Object.entries(plan.lists).filter(([, items]) => items.length);
  $('verdict').textContent = plan.version ? `${plan.verdict}. ${plan.sentence}` : 'There is no plan yet. Let the planner finish it.';
  $('plan').replaceChildren(
    plain(plan.standings),
    ...(plan.midterms.length ? [heading('Midterms'), plain(plan.midterms)] : []),
    ...(ahead.length ? [heading('Days'), ...ahead.map((each) => day(each, plan.today))] : []),
    ...(before.length ? [folded('before', heading('Earlier days'), ...before.map((each) => day(each, plan.today)))] : []),
    ...(plan.topics.length ? [folded('topics', heading('Topics'), ...plan.topics.map(topics))] : []),
    ...lists.map(([name, items]) => folded(name, heading(name), plain(items))),
    ...(plan.version ? [soft(`${plan.title}.`)] : []));
  if (focused) document.querySelector(`input[data-what="${CSS.escape(focused)}"]`)?.focus();
}

async function answered(answer) {
  if (answer.ok) {
    tell('');
    draw(await answer.json());
    return true;
  }
  const { detail } = await answer.json().catch(() => ({}));
  tell(answer.status === 401 ? detail ?? SIGN_IN : detail ?? OFF);
  if (answer.status === 401) $('plan').replaceChildren();
  return false;
}

// One mark is sent after the other, in the order in which they were set.
function mark(input) {
  const { what } = input.dataset, done = input.checked;
  marks = marks.then(async () => {
    const saved = await post('/marks', { what, done }).then(answered).catch(() => { tell(OFF); return false; });
    if (!saved) input.checked = !done;
  });
}

const read = () => get('/plan').then(answered);

async function begin() {
  const signed = await signIn();
  if (signed && !signed.ok) return tell((await signed.json()).detail ?? SIGN_IN);
  return read();
}

document.addEventListener('visibilitychange', () => { if (!document.hidden) read().catch(() => tell(OFF)); });
begin().catch(() => tell(OFF));

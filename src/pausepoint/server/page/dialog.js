// A dialog asks before something is done: why, how, and what it would do.
//
// { title, say, isBad, isForm, body(page), plan(values), send(values) }: `say` is the word on the button. `isForm`: it is wide,
// and the server checks what was typed. What `plan` draws for the present values of the form is shown above the button.
import { render } from './vendor/lit-html.js';
import { html } from './marks.js';
import { Problem } from './api.js';

function values(form) {
  const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ''));
  for (const box of form.querySelectorAll('[type=checkbox][name]')) given[box.name] = box.checked;
  return given;
}

function refusal(error) {
  if (!(error instanceof Problem)) throw error;
  return html`<p class="err" role="alert">${error.message}</p>`;
}

// Draw the plan. An older answer that comes later is dropped.
export async function opened(page, form = document.querySelector('dialog form')) {
  const { dialog } = page;
  if (!dialog?.plan) return;
  const asked = dialog.asked = (async () => dialog.plan(values(form)))();
  const drawn = await asked.catch(refusal);
  if (page.dialog?.asked === asked) render(drawn, form.querySelector('.preview'));
}

async function submit(page, event) {
  event.preventDefault();
  const form = event.target, button = form.querySelector('.go'), asked = page.dialog;
  button.disabled = true;
  try {
    await asked.send(values(form));
    if (page.dialog === asked) page.closeDialog();  // it may have opened another one
  } catch (error) {
    render(refusal(error), form.querySelector('.refusal'));
    button.disabled = false;
  }
}

export function dialog(page) {
  const { title, say, isBad, isForm, body } = page.dialog;
  return html`<dialog class=${isForm ? 'wide' : ''} aria-labelledby="dialog-title" @close=${() => page.dialog && page.closeDialog()}>
    <form ?novalidate=${isForm} @submit=${(event) => submit(page, event)} @change=${(event) => opened(page, event.currentTarget)}>
      <header><h2 id="dialog-title">${title}</h2></header>
      <div class="body">${body(page)}<div class="preview"></div><div class="refusal"></div></div>
      <footer class="row end"><button class="b" type="button" @click=${() => page.closeDialog()}>${say ? 'Not now' : 'Close'}</button>${say ?
        html`<button class="b go ${isBad ? 'bad' : 'main'}">${say}</button>` : ''}</footer></form></dialog>`;
}

// parts of dialogs

export const why = html`<label class="field">Why<input class="in" name="reason" placeholder="Others will read this" autocomplete="off"></label>`;

const pick = (value, text, isFirst) =>
  html`<label class="choice"><input type="radio" name="mode" value=${value} ?checked=${isFirst}><span>${text}</span></label>`;

export const how = html`<fieldset class="field"><legend>How</legend><div class="choices">${pick('finish', 'after the current operation', true)}${
  pick('abort', 'abort it and run it again later')}</div></fieldset><label class="check"><input type="checkbox" name="freeze"><span>Freeze timers<br><span
  class="hint">Sleeping sessions wake later by the length of the pause</span></span></label>`;

const KEYS = {
  'g n': 'Now', 'g i': 'Inbox', 'g s': 'Sessions', 'g a': 'Agents', 'g d': 'Store', 'j k': 'next, previous row', Enter: 'open it', '/': 'search',
  p: 'pause everything, or this session', x: 'select a session in the list', '?': 'these keys',
};

export const keysDialog = () => ({
  title: 'Keys', body: () => html`<dl class="kv plain">${Object.entries(KEYS).map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>`,
});

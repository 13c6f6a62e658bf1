// The customer's chat. All texts of other people are set as text, never as HTML.

import { get, post, signIn, stream } from './visitor.js';

const $ = (id) => document.getElementById(id);
const TEXTS = {
  en: {
    lang: 'en', title: 'Helpdesk', you: 'You', bot: 'Helpdesk', person: 'Helpdesk, a person', label: 'Your message', send: 'Send',
    typing: 'The helpdesk is writing …', sending: 'not sent yet', off: 'Not connected. Trying again …', on: '',
    withPerson: (name) => `You are talking to ${name}.`, before: (n) => `${n} earlier messages are not shown.`,
    late: 'The helpdesk has asked something else meanwhile, so your message was not used. Please read the question, then send your answer.',
    hello: (name) => `Hello ${name}. Ask about an order, an address, a refund or an appointment.`,
    signIn: 'Open the link that the shop has sent you. A link ends after some time; ask the shop for a new one.',
    busy: 'You have sent many messages. Please wait a minute.', refused: 'Your message was not accepted. Please shorten it, and send it again.',
  },
  zh: {
    lang: 'zh', title: '客服', you: '您', bot: '客服', person: '人工客服', label: '您的消息', send: '发送',
    typing: '客服正在输入…', sending: '尚未发送', off: '连接已断开，正在重试…', on: '',
    withPerson: (name) => `正在与您对话：${name}。`, before: (n) => `更早的${n}条消息未显示。`,
    late: '客服已提出新的问题，您的消息未被采用。请阅读后再发送您的回答。',
    hello: (name) => `${name}，您好。您可以咨询订单、地址、退款或预约。`,
    signIn: '请打开商店发给您的链接。链接会过期，如已过期请向商店索取新的链接。',
    busy: '您发送的消息过多，请稍候一分钟。', refused: '您的消息未被接受，请缩短后重新发送。',
  },
};

let words = TEXTS[navigator.language.startsWith('zh') ? 'zh' : 'en'];
let shown = null;
let source = null;
let wait = 1000;
let sending = false;
let awaySince = 0;

// What was written and is not confirmed yet survives a reload, and is sent again with the same key.
const OUTBOX = 'helpdesk-outbox';
const outbox = JSON.parse(sessionStorage.getItem(OUTBOX) ?? '[]');
const keep = () => sessionStorage.setItem(OUTBOX, JSON.stringify(outbox));

function tell(text) {
  $('notice').textContent = text;
  $('notice').hidden = !text;
}

// drawing

function row(author, by, text, isPending) {
  const item = document.createElement('li');
  item.className = isPending ? `${author} pending` : author;
  const name = document.createElement('span');
  name.className = 'by';
  name.textContent = author === 'customer' ? words.you : author === 'operator' ? (by || words.person) : words.bot;
  if (isPending === 'unsent') name.textContent += ` · ${words.sending}`;
  const said = document.createElement('p');
  said.className = 'said';
  said.textContent = text;
  item.append(name, said);
  return item;
}

// Messages only join at the end, so rows that are drawn already stay, and a screen reader reads the new ones only.
function draw() {
  if (!shown) return;
  const list = $('messages');
  const rows = shown.messages.map(({ author, by, text }) => [author, by, text, '']);
  if (shown.before) rows.unshift(['bot', '', words.before(shown.before), '']);
  if (!rows.length) rows.push(['bot', '', words.hello(shown.name), '']);
  for (const each of outbox) rows.push(['customer', '', each.text, each.sent ? 'sent' : 'unsent']);
  if (shown.trouble) rows.push(['bot', '', shown.trouble, '']);
  const main = $('scroll');
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
  rows.forEach((each, n) => {
    const mark = JSON.stringify([...each, words.lang]);
    const present = list.children[n];
    if (present?.dataset.mark === mark) return;
    const made = row(...each);
    made.dataset.mark = mark;
    if (present) present.replaceWith(made); else list.append(made);
  });
  while (list.children.length > rows.length) list.lastChild.remove();
  $('typing').hidden = !(shown.typing || outbox.some((each) => each.sent) && !shown.operator);
  $('typing-text').textContent = words.typing;
  $('who').textContent = shown.operator ? words.withPerson(shown.operator) : shown.name;
  if (atEnd) main.scrollTop = main.scrollHeight;
}

function speak(language) {
  words = TEXTS[language] ?? TEXTS.en;
  document.documentElement.lang = words.lang;
  document.querySelector('h1').textContent = words.title;
  $('label').textContent = words.label;
  $('text').placeholder = words.label;
  $('send').textContent = words.send;
}

function changed(found) {
  const count = (all, text) => all.filter((each) => each.author === 'customer' && each.text.trim() === text.trim()).length;
  shown = found;
  if (found.messages.length) speak(found.language);
  // A message that was sent is drawn from the outbox until the chat has it.
  for (const each of [...outbox]) {
    if (each.sent && count(found.messages, each.text) > each.known) outbox.splice(outbox.indexOf(each), 1);
  }
  keep();
  draw();
}

// sending

async function flush() {
  if (sending) return;
  sending = true;
  try {
    for (let next; (next = outbox.find((each) => !each.sent)); draw()) {
      const answer = await post('/messages', { text: next.text, key: next.key, seen: next.seen });
      if (answer.ok) {
        const { late } = await answer.json();
        tell(late ? words.late : '');
        if (late) outbox.splice(outbox.indexOf(next), 1); else next.sent = true;
        if (late) $('text').value ||= next.text;
      } else if (answer.status === 401) {
        return signedOut();
      } else if (answer.status === 429) {
        tell(words.busy);
        break;
      } else if (answer.status < 500) {
        outbox.splice(outbox.indexOf(next), 1);
        $('text').value ||= next.text;
        tell(words.refused);
      } else break;
      keep();
    }
  } catch {  // no connection: it is tried again
  } finally {
    sending = false;
  }
  if (outbox.some((each) => !each.sent)) setTimeout(flush, 2000);
}

function submit() {
  const text = $('text').value.trim();
  if (!text) return;
  const known = (shown?.messages ?? []).filter((each) => each.author === 'customer' && each.text.trim() === text).length
    + outbox.filter((each) => each.text === text).length;
  outbox.push({ text, key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`, sent: false, known, seen: shown?.question });
  keep();
  $('text').value = '';
  draw();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  flush();
}

// the stream

function connect() {
  source?.close();
  source = stream('/stream');
  source.addEventListener('changed', (event) => {
    wait = 1000;
    $('state').textContent = words.on;
    changed(JSON.parse(event.data));
  });
  source.onerror = () => {
    $('state').textContent = words.off;
    source.close();
    setTimeout(reconnect, wait);
    wait = Math.min(wait * 2, 15000);
  };
}

async function reconnect() {
  const answer = await get('/messages').catch(() => null);
  if (answer?.status === 401) return signedOut();
  connect();
}

function signedOut() {
  source?.close();
  $('form').hidden = true;
  $('messages').replaceChildren();
  $('typing').hidden = true;
  $('who').textContent = $('state').textContent = '';
  outbox.length = 0;
  keep();
  shown = null;
  tell(words.signIn);
}

async function begin() {
  speak(words.lang);
  const signed = await signIn();
  if (signed) {
    if (!signed.ok) return tell((await signed.json()).detail ?? words.signIn);
    if (sessionStorage.getItem('helpdesk-name') !== (await signed.json()).name) outbox.length = 0;
  }
  const answer = await get('/messages');
  if (!answer.ok) return signedOut();
  const found = await answer.json();
  sessionStorage.setItem('helpdesk-name', found.customer);
  $('form').hidden = false;
  changed(found);
  $('scroll').scrollTop = $('scroll').scrollHeight;
  $('text').focus();
  await post('/return', {});
  connect();
  flush();
}

$('form').addEventListener('submit', (event) => { event.preventDefault(); submit(); });
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) awaySince = Date.now();
  else if (shown && Date.now() - awaySince > 60000) post('/return', {}).then(reconnect, reconnect);
});

begin().catch(() => { $('state').textContent = words.off; setTimeout(() => location.reload(), 5000); });

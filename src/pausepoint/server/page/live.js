// Live updates: one stream per browser, because a browser opens only six connections to a server.
//
// One tab holds a lock and has the stream, and passes the events on. Each tab says which topics it shows; a hidden one leaves
// after a while. Without locks (plain HTTP from another machine), each tab has a stream.
import { address } from './api.js';

const EVENTS = ['head', 'now', 'inbox', 'standing', 'store', 'line', 'token', 'reset'];
const SAY_EVERY = 10_000, LEAVE_AFTER = 30_000;

export class Live {
  topics = [];
  others = new Map();  // tab → its topics

  // `page.heard` is called with the name of an event and its data, `page.link` with whether the stream is open.
  constructor(page) {
    Object.assign(this, { page, me: Math.random(), leads: !navigator.locks });
    document.addEventListener('visibilitychange', () => this.#looked());
    setInterval(() => this.#keepUp(), SAY_EVERY);
    if (this.leads) return;
    this.channel = new BroadcastChannel(`pausepoint ${address('/')}`);
    this.channel.onmessage = ({ data }) => this.#received(...data);
    addEventListener('pagehide', () => this.#say('topics', [], this.me));
    navigator.locks.request(this.channel.name, () => this.#lead());
  }

  // Say what this tab shows. The stream follows.
  follow(topics) {
    this.topics = topics;
    this.#keepUp();
  }

  #say(...message) { this.channel?.postMessage(message); }

  #lead() {
    this.leads = true;
    this.#say('ask');
    this.#keepUp();
    return new Promise(() => {});  // the browser releases the lock when the tab is closed
  }

  #looked() {
    clearTimeout(this.away);
    if (document.hidden) this.away = setTimeout(() => { this.left = true; this.#keepUp(); }, LEAVE_AFTER);
    else if (this.left) { this.left = false; this.#keepUp(); this.page.heard('reset', {}); }
  }

  #keepUp() {
    const own = this.left ? [] : this.topics;
    this.#say('topics', own, this.me);
    if (this.leads) this.#open([...new Set([own, ...this.others.values()].flat())].sort().join(','));
    else this.open = '';
  }

  #open(topics) {
    if (topics === this.open && this.source?.readyState !== EventSource.CLOSED) return;
    const isFirst = this.open === undefined;
    this.open = topics;
    this.source?.close();
    this.source = topics ? new EventSource(address('/stream', { topics })) : null;
    if (!topics) return;
    this.source.onopen = () => this.#tell('link', true);
    this.source.onerror = () => this.#tell('link', false);
    for (const name of EVENTS) this.source.addEventListener(name, ({ data }) => this.#tell(name, JSON.parse(data)));
    if (!isFirst) this.#tell('reset', {});  // a new stream does not know what the former one has sent
  }

  #tell(name, data) {
    this.#hear(name, data);
    this.#say(name, data);
  }

  #hear(name, data) {
    if (name === 'link') this.page.link(data);
    else if (!this.left) this.page.heard(name, data);
  }

  #received(name, data, from) {
    if (name === 'ask') this.#keepUp();
    else if (name !== 'topics') this.leads || this.#hear(name, data);
    else if (this.others.set(from, data) && this.leads) {
      clearTimeout(this.soon);  // several tabs say their topics at once; one new stream is enough
      this.soon = setTimeout(() => this.#keepUp(), 50);
    }
  }
}

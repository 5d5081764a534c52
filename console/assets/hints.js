// The stream of hints, one for all pages of a browser: browsers open few connections to a host. It runs in a worker that
// the pages share, or in the page itself where there are no shared workers.
const hints = (() => {
  'use strict';
  // Topics that are remembered for a page that joins. One that knows of less looks at everything.
  const TOPICS_MAX = 1_000;
  const DELAY_MIN_MS = 400;
  const DELAY_MAX_MS = 2_000;

  // The pages, by the port to each.
  const pages = new Set();
  // When each topic changed last, the longest ago first.
  const changed = new Map();
  // All topics that changed behind this position are in `changed`.
  let floor = 0;
  // All hints up to this position were heard.
  let position = 0;
  // The address of the stream.
  let live;
  let state = 'connecting';
  let running = false;
  let delay = DELAY_MIN_MS;
  let connection = new AbortController();
  let wake = () => {};

  const tell = (message) => { for (const page of pages) page.postMessage(message); };
  const turn = (to) => {
    if (state !== to) tell({ state: to });
    state = to;
  };

  const note = (topic, at) => {
    if (topic === 'lw-all') {
      changed.clear();
      floor = at;
    } else {
      changed.delete(topic);
      changed.set(topic, at);
      if (changed.size > TOPICS_MAX) {
        const [oldest] = changed.keys();
        floor = Math.max(floor, changed.get(oldest));
        changed.delete(oldest);
      }
    }
    tell({ topic });
  };

  const hear = (text) => {
    const { event, data, id } = Object.fromEntries(text.split('\n').map((line) => line.split(/: ?(.*)/)));
    if (event) note(event, Number(data));
    if (id) position = Number(id);
  };

  const read = async (reader) => {
    const decoder = new TextDecoder();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (text + decoder.decode(value, { stream: true })).split('\n\n');
      text = events.pop();
      events.forEach(hear);
    }
  };

  const connect = async () => {
    connection = new AbortController();
    // The header has a session that ended refused, and not sent to another page.
    const options = { headers: { 'HX-Request': 'true' }, cache: 'no-store', signal: connection.signal };
    const answer = await fetch(`${live}?after=${position}`, options);
    if (answer.status === 401) return 'signed-out';
    if (!answer.ok) return 'away';
    turn('live');
    delay = DELAY_MIN_MS;
    await read(answer.body.getReader());
    return 'away';
  };

  const pause = (ms) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => { clearTimeout(timer); resolve(); };
  });

  const run = async () => {
    running = true;
    while (pages.size) {
      turn(await connect().catch(() => 'away'));
      await pause(delay * (0.8 + 0.4 * Math.random()));
      delay = Math.min(delay * 2, DELAY_MAX_MS);
    }
    running = false;
  };

  const leave = (page) => {
    pages.delete(page);
    if (!pages.size) connection.abort();
  };

  // A page that was made at a position: what changed since is told at once, and from now on what changes.
  const join = (page, { after, live: told = live }) => {
    live = told;
    if (!pages.size && !running) {
      changed.clear();
      floor = position = after;
      state = 'connecting';
    }
    pages.add(page);
    if (after < floor) page.postMessage({ topic: 'lw-all' });
    else for (const [topic, at] of changed) if (at > after) page.postMessage({ topic });
    if (state === 'live') page.postMessage({ state });
    else state = 'connecting';
    wake();
    if (!running) run();
  };

  // What comes through the port to a page: where it was made and what it listens to, and that it goes.
  const serve = (port) => {
    port.onmessage = ({ data }) => (data === 'leave' ? leave(port) : join(port, data));
  };

  if ('SharedWorkerGlobalScope' in globalThis) globalThis.onconnect = ({ ports: [port] }) => serve(port);
  return { serve };
})();

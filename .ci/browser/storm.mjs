// Eight tabs of one browser while a broker records some hundred events a second: no key that is pressed is lost, and no tab
// reloads a part of itself more than twice a second. To be run by hand, from the folder that .ci/browser/run fills:
// node storm.mjs [SECONDS] [EVENTS_PER_SECOND]
import assert from 'node:assert/strict';
import { Broker, connected, launch, signedIn, watch } from './world.mjs';

const [seconds = '10', rate = '500'] = process.argv.slice(2);
process.env.LASTWORD ??= '../debug/lastword';
const TABS = ['/', '/inbox', '/conversations', '/conversations/HOLD-1', '/agents', '/graph', '/incidents', '/spend'];
const AGENTS = 8;
const TEXT = 'every key that is pressed stays where it was put';

const broker = await Broker.start(`[limits]
sender_messages_max = 1000000
pair_messages_max = 1000000
fan_out_targets_max = 1000000
grant_messages_max = 9000
turns_hard_max = 1000000
turns_soft_max = 1000000
inbox_max = 100000
agent_day_tokens_max = 1000000000000
`);
const browser = await launch();
await broker.agent('coder');
await broker.ask('coder', 'HOLD-1', 'Wait for a human');
await broker.take('coder');
const { id } = await broker.call('coder', 'POST', '/escalations', { message: 'What shall I do?', options: [] });
for (let n = 0; n < AGENTS; n += 1) await broker.agent(`storm-${n}`);

const first = await signedIn(browser, broker);
const tabs = [];
for (const path of TABS) {
  const page = path === '/' ? first : await first.context().newPage();
  if (page !== first) watch(page);
  page.asked = [];
  page.on('request', (request) => { if (request.headers()['hx-request'] && request.method() === 'GET') page.asked.push(new URL(request.url()).pathname); });
  await page.goto(broker.url + path);
  await connected(page);
  page.asked.length = 0;
  tabs.push(page);
}

// Exchanges at a steady rate. Each is about eight facts: a conversation, a grant, a request, a turn, its spending and answer.
const FACTS = 8;
let exchanges = 0;
let storming = true;
const storm = async (who, at) => {
  const period = (1_000 * AGENTS * FACTS) / Number(rate);
  for (let due = Date.now() + (at * period) / AGENTS; storming; due += period) {
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - Date.now())));
    await broker.ask(who, `STORM-${at}-${exchanges}`, 'Say ok');
    const { turn } = await broker.take(who);
    await broker.call(who, 'POST', `/turns/${turn.id}/finish`, { answer: 'ok' });
    exchanges += 1;
  }
};
const began = Date.now();
const storms = Array.from({ length: AGENTS }, (_, n) => storm(`storm-${n}`, n));
const field = tabs[1].locator(`#${id}-answer`);
await field.focus();
while (Date.now() - began < Number(seconds) * 1_000) {
  await field.fill('');
  await field.pressSequentially(TEXT, { delay: 40 });
  assert.equal(await field.inputValue(), TEXT, 'a key was lost');
}
storming = false;
await Promise.all(storms);
const took = (Date.now() - began) / 1_000;
const events = (exchanges * FACTS) / took;
console.log(`${exchanges} exchanges in ${took.toFixed(1)} s, about ${events.toFixed(0)} events/s; no key was lost`);
for (const [n, page] of tabs.entries()) {
  const parts = page.asked.reduce((sums, path) => ({ ...sums, [path]: (sums[path] ?? 0) + 1 }), {});
  const most = Math.max(0, ...Object.values(parts)) / took;
  console.log(`${TABS[n].padEnd(24)} ${(page.asked.length / took).toFixed(2)} reloads/s`);
  assert.ok(page.asked.length / took <= 2 && most <= 1.5, JSON.stringify(parts));
  assert.deepEqual(page.errors, []);
}
await browser.close();
await broker.end();

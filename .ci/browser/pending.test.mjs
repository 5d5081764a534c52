// Five hundred calls wait, of which one is another: the page comes at once, costs the browser little, and all that are alike
// are decided together. LASTWORD_FIRST_BYTE_MS=100 is what a release holds; the default is for a debug build.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, connected, launch, signedIn, until } from './world.mjs';

const LANES = 10;
const CALLS = 500;
const FIRST_BYTE_MS = Number(process.env.LASTWORD_FIRST_BYTE_MS ?? 1_000);
const PROCESSOR_S = 1;
const LOOKS = 9;

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start();
  // One of each agent: a call that a task holds already is the same call.
  await Promise.all(Array.from({ length: LANES }, async (_, lane) => {
    for (let n = lane; n < CALLS; n += LANES) {
      const who = `agent-${n}`;
      await broker.agent(who);
      await broker.ask(who, `CALLS-${n}`, 'Test it');
      await broker.take(who);
      const command = n === 77 ? 'npm test && rm -rf /' : 'npm test';
      await broker.call(who, 'POST', '/approvals', { tool: 'Bash', arguments: { command } });
    }
  }));
  page = await signedIn(browser, broker);
});

after(async () => {
  await browser?.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const pending = async () => {
  const { items } = await broker.call('operator', 'GET', '/approvals');
  return items.filter(({ state }) => state === 'pending').map((call) => call.arguments.command);
};

test('the first byte of the inbox comes at once, and the page costs the browser little', async () => {
  const times = [];
  for (let n = 0; n < LOOKS; n += 1) {
    await page.goto(`${broker.url}/inbox`);
    const [{ responseStart, requestStart }] = await page.evaluate(() => performance.getEntriesByType('navigation').map((one) => one.toJSON()));
    times.push(responseStart - requestStart);
  }
  const median = times.toSorted((a, b) => a - b)[LOOKS >> 1];
  const tools = await page.context().newCDPSession(page);
  await tools.send('Performance.enable');
  const seconds = async () => (await tools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration').value;
  const before = await seconds();
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  const spent = (await seconds()) - before;
  console.log(`${CALLS} calls: first byte after ${median.toFixed(0)} ms, ${spent.toFixed(2)} s of the renderer's processor`);
  assert.ok(median <= FIRST_BYTE_MS, `${median} ms`);
  assert.ok(spent <= PROCESSOR_S, `${spent} s`);
});

test('the one that differs stands apart and first, and the alike are decided in three clicks', async () => {
  await page.goto(`${broker.url}/`);
  await connected(page);
  let clicks = 0;
  const click = async (locator) => { clicks += 1; await locator.click(); };
  await click(page.getByRole('navigation', { name: 'Rooms' }).getByRole('link', { name: 'Inbox' }));
  await connected(page);
  const cards = page.locator('.cards > .card');
  assert.match(await cards.first().innerText(), /deletes files[\s\S]*rm -rf \//);
  assert.equal(await cards.count(), 2);
  // What is approved was read before.
  const approve = page.getByRole('button', { name: `Approve all ${CALLS - 1}` });
  await approve.evaluate((button) => button.scrollIntoView({ block: 'center' }));
  await until(() => approve.evaluate((button) => steady.unseen(button.closest('.card')).length), 0);
  await click(approve);
  await page.locator('#flash').getByText(`${CALLS - 1} calls are approved.`).waitFor({ timeout: 60_000 });
  assert.ok(clicks <= 3, `${clicks} clicks`);
  assert.deepEqual(await pending(), ['npm test && rm -rf /']);
});

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Broker, connected, launch, signedIn, until, watch } from './world.mjs';

// A browser opens at most six connections to a host over HTTP/1.1.
const TABS = 8;

let browser, broker, first;

const raise = (message) => broker.call('coder', 'POST', '/escalations', { message, options: [] });
const waiting = (page) => page.evaluate(() => Number(document.querySelector('#waiting').dataset.waiting));

before(async () => {
  browser = await launch();
  broker = await Broker.start();
  await broker.agent('coder');
  await broker.ask('coder', 'TABS-1', 'Ask a lot');
  await broker.take('coder');
  first = await signedIn(browser, broker);
  first.setDefaultTimeout(10_000);
  await first.goto(`${broker.url}/inbox`);
});

after(async () => {
  await browser.close();
  await broker.end();
});

afterEach(async () => {
  const { items } = await broker.call('operator', 'GET', '/escalations');
  const open = items.filter((asked) => asked.state === 'open');
  for (const { id } of open) await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
  await until(() => waiting(first), 0);
});

/** Opens tabs of the same browser beside the first. */
const opened = async (context, more) => {
  const tabs = [];
  for (let n = 0; n < more; n += 1) {
    const tab = await context.newPage();
    watch(tab);
    await tab.goto(`${broker.url}/inbox`, { timeout: 10_000 });
    tabs.push(tab);
  }
  return tabs;
};

test('eight tabs are live and can be navigated, and go on when any of them is closed', async () => {
  const tabs = [first, ...await opened(first.context(), TABS - 1)];
  await Promise.all(tabs.map(connected));
  const one = await raise('Who hears of it?');
  for (const tab of tabs) await tab.locator(`#${one.id}`).waitFor();
  for (const tab of tabs) {
    await tab.getByRole('link', { name: 'Agents' }).click({ timeout: 10_000 });
    await tab.waitForURL(/\/agents$/);
    await connected(tab);
  }
  // The tab that opened the stream goes, and the one that came last.
  await tabs.shift().close();
  await tabs.pop().close();
  await raise('And now?');
  for (const tab of tabs) await until(() => waiting(tab), 2);
  // What happens while the broker is away for all of them is told to all of them.
  await broker.down();
  for (const tab of tabs) await tab.getByText('The server is away. Reconnecting').waitFor();
  await broker.up(new URL(broker.url).host);
  for (const tab of tabs) await tab.locator('#banner').waitFor({ state: 'hidden' });
  await raise('And after a restart?');
  for (const tab of tabs) await until(() => waiting(tab), 3);
  for (const tab of tabs) assert.deepEqual(tab.errors, []);
  first = tabs[0];
});

test('a page that was made before others heard of something hears of it, too', async () => {
  const other = await first.context().newPage();
  watch(other);
  await connected(first);
  // The page is there and its script isn't: what happens meanwhile only the first tab hears of.
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await other.route('**/assets/console-*.js', async (route) => { await held; await route.continue(); });
  await other.goto(`${broker.url}/inbox`, { waitUntil: 'commit' });
  await other.locator('#waiting').waitFor({ state: 'attached' });
  await until(() => waiting(other), 0);
  const { id } = await raise('In between');
  await until(() => waiting(first), 1);
  release();
  await other.locator(`#${id}`).waitFor();
  await until(() => waiting(other), 1);
  assert.deepEqual(other.errors, []);
  await other.close();
});

test('a page that one goes back to is live again', async () => {
  await first.goto(`${broker.url}/inbox`);
  await connected(first);
  await first.getByRole('link', { name: 'Agents' }).click();
  await first.waitForURL(/\/agents$/);
  await connected(first);
  await raise('Meanwhile?');
  await until(() => waiting(first), 1);
  await first.goBack();
  await until(() => waiting(first), 1);
  const { id } = await raise('And back?');
  await first.locator(`#${id}`).waitFor();
});

test('without shared workers a page is live by itself', async () => {
  const context = await browser.newContext({ storageState: await first.context().storageState() });
  await context.addInitScript(() => { delete window.SharedWorker; });
  const other = await context.newPage();
  watch(other);
  await other.goto(`${broker.url}/inbox`);
  assert.equal(await other.evaluate(() => typeof SharedWorker), 'undefined');
  await connected(other);
  const { id } = await raise('Alone?');
  await other.locator(`#${id}`).waitFor();
  assert.deepEqual(other.errors, []);
  await context.close();
});

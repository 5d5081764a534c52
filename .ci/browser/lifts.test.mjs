import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, connected, launch, signedIn, steadied } from './world.mjs';

let browser, broker, page;

const ask = (to) => broker.call('coder', 'POST', '/messages', { type: 'request', to, body: 'help' });
const raise = async (message) => (await broker.call('coder', 'POST', '/escalations', { message })).id;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\ntask_requests_max = 1\n');
  for (const name of ['coder', 'reader', 'tester', 'writer']) await broker.agent(name);
  await broker.ask('coder', 'MORE-1', 'Do it');
  await broker.take('coder');
  await ask('reader');
  await assert.rejects(ask('tester'), /task_requests/);
  page = await signedIn(browser, broker);
  await page.goto(`${broker.url}/inbox`);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

test('words that are sent by keyboard are words, and give nothing', async () => {
  const id = await raise('May I ask again?');
  await connected(page);
  const card = page.locator(`#${id}`);
  await page.locator(`#${id}-lift`).getByText('an answer lifts no limit').waitFor();
  await page.getByLabel(`Your answer to ${id}`).fill('no, not at all');
  await page.keyboard.press('Control+Enter');
  await card.waitFor({ state: 'detached' });
  const settled = await broker.call('operator', 'GET', `/escalations/${id}`);
  assert.deepEqual([settled.answer, settled.lifts.some(({ chosen }) => chosen)], ['no, not at all', false]);
  await assert.rejects(ask('tester'), /task_requests/);
});

test('a lift is chosen by keyboard, and the task goes on with more, and the question stays', async () => {
  const id = await raise('And now?');
  const card = page.locator(`#${id}`);
  await card.waitFor();
  await page.locator(`#${id}-lift`).focus();
  await page.keyboard.press('l');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), '4 more requests');
  await steadied(page);
  await page.keyboard.press('Enter');
  await page.locator(`#${id}-lift`).waitFor({ state: 'detached' });
  await page.locator('#flash').getByText('coder continues').waitFor();
  const settled = await broker.call('operator', 'GET', `/escalations/${id}`);
  assert.ok(settled.lifts[0].chosen);
  assert.deepEqual([settled.state, settled.answer], ['open', undefined]);
  await card.waitFor();
  await ask('tester');
});

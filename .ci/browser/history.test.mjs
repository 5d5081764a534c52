// A history of several pages, with scripts and without, and links into folds.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, until } from './world.mjs';

const ROUNDS = 52;

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start(`[limits]
sender_messages_max = 1000000
pair_messages_max = 1000000
fan_out_targets_max = 1000000
`);
  for (const name of ['coder', 'reviewer']) await broker.agent(name);
  for (let n = 0; n < ROUNDS; n += 1) {
    await broker.ask('coder', 'LONG-1', `Round ${n}`);
    const { turn } = await broker.take('coder');
    await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'reviewer', ref: 'LONG-1', body: `Look at part ${n}` });
    await broker.call('coder', 'POST', `/turns/${turn.id}/finish`, { answer: '' });
    const part = await broker.take('reviewer');
    await broker.call('reviewer', 'POST', `/turns/${part.turn.id}/finish`, { answer: 'Fine' });
    const answer = await broker.take('coder');
    await broker.call('coder', 'POST', `/turns/${answer.turn.id}/finish`, { answer: 'Done' });
  }
  await broker.ask('coder', 'LONG-1', 'The last round');
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
});

// Whatever failed, nothing stays that would keep the command from its end.
after(async () => {
  await browser?.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const span = (of) => of.locator('nav.paging').first().innerText();

test('the links lead to the oldest part and back, also without scripts', async () => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await page.context().storageState() });
  for (const shown of [page, await context.newPage()]) {
    await shown.goto(`${broker.url}/conversations/LONG-1`);
    assert.match(await span(shown), /of 209$/);
    await shown.getByText('The last round').last().waitFor();
    assert.equal(await shown.getByRole('link', { name: 'Later' }).count(), 0);
    await shown.getByRole('link', { name: 'Earlier' }).first().click();
    await shown.waitForURL(/before=msg-/);
    assert.match(await span(shown), /Messages 1–/);
    await shown.getByText('Round 0', { exact: true }).last().waitFor();
    await shown.getByRole('link', { name: 'Later' }).first().click();
    await shown.waitForURL(/after=msg-/);
    assert.match(await span(shown), /–209 of 209$/);
  }
  await context.close();
});

test('a link to a message on another part leads to that part', async () => {
  await page.goto(`${broker.url}/conversations/LONG-1?view=tree`);
  const { items } = await broker.call('operator', 'GET', '/messages?ref=LONG-1&q=Round&limit=500');
  const { id } = items.find(({ body }) => body === 'Round 0');
  await page.evaluate((hash) => { location.hash = hash; }, id);
  await page.waitForURL((url) => url.searchParams.get('at') === id && url.hash === `#${id}`);
  await page.locator(`#${id}`).getByText('Round 0').waitFor();
});

test('a link into a fold unfolds it, on arrival and on the page', async () => {
  const fold = page.locator('#more');
  await page.goto(`${broker.url}/conversations/LONG-1#more`);
  await until(() => fold.evaluate(({ open }) => open), true);
  await page.getByRole('button', { name: 'Extend' }).waitFor();
  await page.goto(`${broker.url}/conversations/LONG-1`);
  await connected(page);
  assert.equal(await fold.evaluate(({ open }) => open), false);
  await page.evaluate(() => { location.hash = 'more'; });
  await until(() => fold.evaluate(({ open }) => open), true);
});

test('the head is short, and the sums of the waterfall are in the window', async () => {
  for (const [width, most] of [[1280, 300], [375, 480]]) {
    await page.setViewportSize({ width, height: 860 });
    for (const view of ['tree', 'waterfall', 'log']) {
      const where = `/conversations/LONG-1?view=${view}`;
      await page.goto(broker.url + where);
      const top = await page.locator('nav.views').evaluate((views) => views.getBoundingClientRect().top);
      assert.ok(top < most, `the views of ${where} begin at ${top} in a window of ${width}`);
      await fits(page, where);
      if (width === 375) await accessible(page, where);
    }
  }
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.goto(`${broker.url}/conversations/LONG-1?view=waterfall`);
  const cut = await page.locator('.sums').evaluate((sums) => {
    const area = sums.parentElement.getBoundingClientRect();
    const cells = [...sums.querySelectorAll('.sum')];
    return sums.getBoundingClientRect().right > area.right + 1 || cells.some((cell) => cell.scrollWidth > cell.clientWidth);
  });
  assert.equal(cut, false);
});

test('each turn of the log says why its agent woke', async () => {
  await page.goto(`${broker.url}/conversations/LONG-1?view=log`);
  for (const why of ['you → coder; your request woke it.', 'you → coder → reviewer; coder\'s request woke it.', 'you → coder; reviewer\'s answer woke it.']) {
    await page.locator('.log').getByText(why).first().waitFor();
  }
  await page.locator('.log li', { hasText: 'reviewer\'s answer woke it.' }).first().locator('a.seq').click();
  await page.getByText('you → coder; reviewer\'s answer woke it.').waitFor();
  await page.goto(`${broker.url}/conversations/LONG-1?view=waterfall`);
  const turns = await page.locator('rect.turn title').allTextContents();
  assert.ok(turns.includes('turn: you → coder → reviewer; coder\'s request woke it.'), turns[0]);
});

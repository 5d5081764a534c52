import { readFile } from 'node:fs/promises';
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, menu, signedIn, until, watch } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  // A hostile text where names can't be: the one of a rule on held calls.
  broker = await Broker.start('[limits]\ngrant_messages_max = 6\n[[approval]]\ntool = "Bash(<b onclick=hit>*)"\ndecision = "deny"\n');
  for (const name of ['coder', 'reviewer', 'idler']) await broker.agent(name);
  page = await signedIn(browser, broker);
});

beforeEach(() => page.goto(`${broker.url}/inbox`));

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const flash = (on = page) => on.locator('#flash');
const state = async (name) => (await broker.call('operator', 'GET', `/agents/${name}`)).state;
/** Has the coder ask others until its grant's six messages are used up, and a latch holds it. */
const latch = async (ref) => {
  await broker.ask('coder', ref, 'Use it up');
  const { turn } = await broker.take('coder');
  for (const to of ['idler', 'reviewer']) await broker.call('coder', 'POST', '/messages', { type: 'request', to, body: 'a part' });
  const last = broker.call('coder', 'POST', '/messages', { type: 'request', to: 'idler', body: 'another part' });
  await assert.rejects(last, /grant_messages/);
  const { items } = await broker.call('operator', 'GET', '/incidents');
  return { id: items.find((incident) => incident.ref === ref && !incident.lifted_at).id, turn: turn.id };
};

test('an agent that one page pauses is paused on another, and resumes there', async () => {
  const other = await page.context().newPage();
  watch(other);
  await page.goto(`${broker.url}/agents/coder`);
  await other.goto(`${broker.url}/agents`);
  await Promise.all([connected(page), connected(other)]);
  await page.getByRole('button', { name: 'Pause' }).click();
  await flash().getByText('coder is paused').waitFor();
  await other.locator('#a-coder .badge', { hasText: 'paused' }).waitFor();
  assert.equal(await state('coder'), 'paused');
  await other.getByRole('link', { name: 'coder' }).click();
  await other.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  assert.equal(await state('coder'), 'active');
  assert.deepEqual(other.errors, []);
  await other.close();
});

test('what an agent works on and since when is on its page', async () => {
  await page.goto(`${broker.url}/agents/reviewer`);
  await connected(page);
  await broker.ask('reviewer', 'READ-1', 'Read <img src=x onerror="window.hit=1"> it');
  await page.getByText('1 request queued').waitFor();
  const delivery = await broker.take('reviewer');
  await page.locator('.lines').getByRole('link', { name: 'READ-1' }).waitFor();
  await page.getByText(delivery.turn.id).waitFor();
  await page.getByText('Show the request').click();
  await page.getByText('onerror="window.hit=1"').waitFor();
  assert.equal(await page.evaluate(() => window.hit), undefined);
  await broker.call('reviewer', 'POST', `/turns/${delivery.turn.id}/finish`, { answer: 'read' });
});

test('a message is written by keyboard from anywhere, and an agent gets it', async () => {
  await page.goto(`${broker.url}/spend`);
  await page.keyboard.press('c');
  await page.waitForURL(/\/compose$/);
  // What is typed before the field has the focus goes nowhere.
  await page.waitForFunction(() => document.activeElement?.name === 'to');
  await page.keyboard.type('idler');
  await page.keyboard.press('Tab');
  await page.keyboard.type('Line one');
  await page.keyboard.press('Enter');
  await page.keyboard.type('and two');
  await page.getByLabel('REF').fill('WRITE-1');
  await page.getByLabel('Priority').selectOption('high');
  await page.keyboard.press('Control+Enter');
  await page.waitForURL(/\/conversations\/WRITE-1$/);
  const { message, turn } = await broker.take('idler');
  assert.deepEqual([message.body, message.from, message.priority], ['Line one\nand two', 'operator', 'high']);
  await broker.call('idler', 'POST', `/turns/${turn.id}/finish`, { answer: 'done' });
  await page.goto(`${broker.url}/compose?to=nobody`);
  await page.keyboard.press('c');
  await page.keyboard.type('Anybody?');
  await page.getByRole('button', { name: 'Send' }).click();
  await flash().getByText('nobody').waitFor();
  assert.equal(await page.getByLabel('Request', { exact: true }).inputValue(), 'Anybody?');
});

test('a limit that tripped stands in the inbox, goes on with what is granted, and is then in the history', async () => {
  await page.goto(`${broker.url}/incidents`);
  await page.waitForURL(/\/inbox$/);
  await connected(page);
  const { id, turn } = await latch('HOLD-1');
  const card = page.locator(`#${id}`);
  await card.getByText('The grant has used up its messages').waitFor();
  await card.getByRole('link', { name: 'HOLD-1' }).first().waitFor();
  await card.getByText('Lift with another amount').click();
  assert.equal(await card.getByLabel('Messages').inputValue(), '3');
  await card.getByLabel('Messages').fill('40');
  await card.getByRole('button', { name: 'Lift with this amount' }).click();
  await flash().getByText('Extended the grant of HOLD-1').waitFor();
  // A second press would give it twice.
  assert.deepEqual(await page.locator('#do-grant input[type=number]').evaluateAll((all) => all.map(({ value }) => value).filter(Boolean)), []);
  await card.waitFor({ state: 'detached' });
  await page.goto(`${broker.url}/conversations`);
  await page.locator('#lifted summary').click();
  await page.locator('#lifted').getByText('lifted by operator').waitFor();
  const limits = (await broker.call('operator', 'GET', '/conversations/HOLD-1')).grants[0].limits;
  assert.equal(limits.find(({ name }) => name === 'grant_messages_max').limit, 46);
  await broker.call('coder', 'POST', `/turns/${turn}/finish`, { answer: 'enough' });
});

test('a limit that tripped is lifted by resuming', async () => {
  await broker.call('operator', 'POST', '/workspace/stop');
  await broker.call('operator', 'POST', '/workspace/resume');
  const { id, turn } = await latch('HOLD-2');
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  // What it gives, and what that can cost, is said before.
  await page.locator(`#${id}-effect`).getByText(/gets 6 more messages\. .*Its budget \(.* tokens, unless extended\) stays\./).waitFor();
  await page.locator(`#${id}`).getByRole('button', { name: 'Lift', exact: true }).click();
  await page.locator(`#${id}`).waitFor({ state: 'detached' });
  const { items } = await broker.call('operator', 'GET', '/incidents');
  assert.ok(items.find((incident) => incident.id === id).lifted_at);
  await broker.call('coder', 'POST', `/turns/${turn}/finish`, { answer: 'enough' });
});

test('the red stop asks first, ends all work by keyboard, and a banner says so on every page', async () => {
  await broker.ask('reviewer', 'STOP-1', 'Never ends');
  const other = await page.context().newPage();
  watch(other);
  await other.goto(`${broker.url}/limits`);
  await connected(other);
  await page.goto(`${broker.url}/agents`);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  await page.getByRole('button', { name: 'Stop…' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByText(/Open work: \d+ grants? in \d+ conversations?, with \d+ open turns?\./).waitFor();
  assert.equal(await focused(), 'Cancel');
  await page.keyboard.press('Enter');
  await dialog.waitFor({ state: 'hidden' });
  assert.equal((await broker.call('operator', 'GET', '/conversations/STOP-1')).counters.open_tasks, 1);
  // What the last opening asked is gone: its buttons would take the focus with them when the answer comes.
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await page.route('**/workspace/question', async (route) => { await held; await route.continue(); });
  await page.getByRole('button', { name: 'Stop…' }).focus();
  await page.keyboard.press('Enter');
  await dialog.waitFor();
  assert.equal(await dialog.getByRole('button', { name: 'Stop everything' }).count(), 0);
  release();
  await dialog.getByRole('button', { name: 'Stop everything' }).waitFor();
  await page.keyboard.press('Shift+Tab');
  assert.equal(await focused(), 'Stop everything');
  await page.keyboard.press('Enter');
  await flash().getByText('The workspace is stopped').waitFor();
  await dialog.waitFor({ state: 'hidden' });
  await other.getByText('The workspace is stopped: its work was cancelled').waitFor();
  assert.equal((await broker.call('operator', 'GET', '/conversations/STOP-1')).counters.open_tasks, 0);
  await other.getByRole('link', { name: 'Resume…' }).click();
  await other.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
  await page.locator('#standing p').waitFor({ state: 'detached' });
  await other.locator('#standing p').waitFor({ state: 'detached' });
  await broker.ask('reviewer', 'STOP-2', 'Goes on');
  assert.deepEqual(other.errors, []);
  await other.close();
});

test('the red stop opens while a message stands on the page, and stays open whatever changes on it', async () => {
  await page.goto(`${broker.url}/agents/coder`);
  await connected(page);
  const stop = page.getByRole('button', { name: 'Stop…' });
  const dialog = page.getByRole('dialog');
  const everything = dialog.getByRole('button', { name: 'Stop everything' });
  await page.getByRole('button', { name: 'Pause' }).click();
  await flash().getByText('coder is paused').waitFor();
  await stop.click();
  await everything.waitFor();
  // A change of the page swaps a part of it below the dialog.
  await broker.call('operator', 'POST', '/agents/coder/resume');
  await page.locator('#do-pause').getByRole('button', { name: 'Pause', exact: true }).waitFor();
  assert.ok(await everything.isVisible());
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await dialog.waitFor({ state: 'hidden' });
  // So does a message that something failed.
  await page.goto(`${broker.url}/compose?to=nobody`);
  await page.getByLabel('Request', { exact: true }).fill('Anybody?');
  await page.getByRole('button', { name: 'Send' }).click();
  await flash().getByText('nobody').waitFor();
  await stop.click();
  await everything.waitFor();
  await page.keyboard.press('Escape');
  // A question that can't be loaded says so where it would stand.
  await page.route('**/workspace/question', (route) => route.abort());
  await stop.click();
  await dialog.getByText('The server did not answer').waitFor();
  await page.unrouteAll({ behavior: 'wait' });
});

test('limits say where they were set and how near things came, and what a rule says is inert', async () => {
  await page.goto(`${broker.url}/limits`);
  const row = page.locator('#limits-set tr', { hasText: 'grant_messages_max' });
  await row.getByText('lastword.toml:2').waitFor();
  await row.getByText('default 64').waitFor();
  await page.locator('.shares li', { hasText: 'grant_messages_max' }).getByRole('link', { name: 'HOLD-' }).waitFor();
  await page.getByText('<b onclick=hit>').waitFor();
  assert.equal(await page.locator('[onclick]').count(), 0);
});

test('an owner changes a limit, in force at once and written into the file, and a wrong value is said beside the field', async () => {
  await page.goto(`${broker.url}/limits`);
  const row = page.locator('tr#lease_ms');
  await page.getByText('Turns and deliveries').click();
  await row.getByRole('link', { name: 'Change lease_ms' }).click();
  await row.getByLabel('New value').fill('soon');
  await row.getByRole('button', { name: 'Change' }).click();
  await row.getByText("isn't an amount").waitFor();
  await row.getByLabel('New value').fill('15');
  assert.equal(await row.getByLabel('Unit').inputValue(), '60000');
  await accessible(page, 'a limit that is changed');
  await row.getByRole('button', { name: 'Change' }).click();
  await flash().getByText('lease_ms is 15 min now, after 10 min.').waitFor();
  await page.locator('#limits-set tr', { hasText: 'lease_ms' }).getByText('set in lastword.toml:').waitFor();
  assert.match(await readFile(broker.config, 'utf8'), /^lease_ms = 900000 {2}# Set by operator on /m);
  const { items } = await broker.call('operator', 'GET', '/limits');
  assert.equal(items.find(({ name }) => name === 'lease_ms').value, 900_000);
});

test('the menu tells who is signed in and where, has the other pages, and closes by itself', async () => {
  for (const [width, height] of [[375, 760], [1200, 900]]) {
    await page.setViewportSize({ width, height });
    await page.goto(`${broker.url}/schedules`);
    const rooms = page.getByRole('navigation', { name: 'Rooms' });
    for (const link of await rooms.getByRole('link').all()) {
      const box = await link.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width, await link.textContent());
    }
    const open = page.locator('#menu');
    assert.ok(!(await open.isVisible()));
    await menu(page);
    await open.getByText('operator').first().waitFor();
    await open.getByText('owner').waitFor();
    await open.getByText(`in the workspace at ${new URL(broker.url).host}`).waitFor();
    assert.equal(await open.getByRole('link', { name: 'Schedules' }).getAttribute('aria-current'), 'page');
    await fits(page, `the menu at ${width}`);
    await accessible(page, `the menu at ${width}`);
    await page.keyboard.press('Escape');
    assert.ok(!(await open.isVisible()));
    await menu(page);
    await open.getByRole('link', { name: 'Team' }).click();
    await page.waitForURL(/\/team$/);
  }
});

test('a link to a limit, to a rule and to what was refused unfolds and marks it, in words for a human', async () => {
  for (const [hash, words] of [['depth_max', 'Deepest message'], ['D11', 'Recipients of one send'], ['bound_warning_messages', 'lastword bound warns']]) {
    await page.goto(`${broker.url}/spend`);
    await page.goto(`${broker.url}/limits#${hash}`);
    const row = page.locator(`tr#${hash}, tr:has(> #${hash})`);
    await row.getByText(words).waitFor();
    assert.ok(await row.evaluate((line) => getComputedStyle(line).backgroundColor !== 'rgba(0, 0, 0, 0)'), hash);
    assert.doesNotMatch(await row.innerText(), /`/);
    assert.equal(await row.locator('.rule-id').evaluate((cell) => getComputedStyle(cell).whiteSpace), 'nowrap');
  }
  await page.goto(`${broker.url}/limits#refused`);
  const refused = page.locator('#refused');
  await refused.getByText('The grant has used up its messages').waitFor();
  assert.doesNotMatch(await refused.innerText(), /\b[Yy]ou\b|\b[Tt]his\b/);
  // It takes less than six windows of a phone.
  await page.setViewportSize({ width: 375, height: 760 });
  await page.goto(`${broker.url}/limits`);
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  assert.ok(height < 760 * 6, `${height}`);
  await page.setViewportSize({ width: 1200, height: 900 });
});

test('a page that is not here says where to go on', async () => {
  const answer = await page.goto(`${broker.url}/nothing/<img src=x onerror=hit>`);
  assert.equal(answer.status(), 404);
  assert.equal(await page.locator('main img').count(), 0);
  await page.getByRole('link', { name: 'Agents' }).click();
  await page.waitForURL(/\/agents$/);
});

test('each of these pages fits a window of 375 and has nothing serious that axe finds, light and dark', async () => {
  await latch('HOLD-3');
  await broker.call('operator', 'POST', '/workspace/pause');
  const paths = ['/agents', '/agents/coder', '/agents/operator', '/schedules', '/limits', '/team', '/spend', '/compose', '/workspace', '/nothing'];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const path of paths) {
      await page.setViewportSize({ width: 375, height: 760 });
      await page.goto(broker.url + path);
      await fits(page, path);
      await page.setViewportSize({ width: 1200, height: 900 });
      await accessible(page, `${path} ${colorScheme}`);
    }
    await page.goto(`${broker.url}/inbox`);
    await page.getByRole('button', { name: 'Stop…' }).click();
    await page.getByRole('button', { name: 'Stop everything' }).waitFor();
    await accessible(page, `the question before a stop, ${colorScheme}`);
  }
  await broker.call('operator', 'POST', '/workspace/resume');
});

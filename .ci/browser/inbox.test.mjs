// The inbox in a window with room for two panes: a line for each decision at the left, the decisions in full at the right.
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, steadied, until } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\ntask_questions_max = 100\napprovals_open_max = 100\nsender_messages_max = 1000\n');
  await broker.agent('coder');
  await broker.ask('coder', 'PANES-1', 'Make calls');
  await broker.take('coder');
  page = await signedIn(browser, broker, { viewport: { width: 1500, height: 800 } });
  page.setDefaultTimeout(10_000);
});

let calls;

beforeEach(async () => {
  for (const id of await open()) await ignore(id);
  calls = [];
  for (let n = 0; n < 4; n += 1) calls.push(await hold(n));
  await page.goto(`${broker.url}/`);
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  await until(() => lines().count(), calls.length);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const ignore = (id) => broker.call('operator', 'POST', `/approvals/${id}/decision`, { decision: 'ignore' });
const open = async () => (await broker.call('operator', 'GET', '/approvals')).items.filter(({ state }) => state === 'pending').map(({ id }) => id);
/** A call that fills most of the window. */
const hold = async (n) => (await broker.call('coder', 'POST', '/approvals', { tool: 'Bash', arguments: { command: `make ${n}\n${'# and more\n'.repeat(16)}` } })).id;
const lines = () => page.locator('.panes > .index a');
const line = (id) => lines().and(page.locator(`[href="#${id}"]`));
const card = (id) => page.locator(`.panes > .cards > #${id}`);
const focused = () => page.evaluate(() => document.activeElement.closest('[data-row]')?.id ?? document.activeElement.id);
/** Whether the decision's heading is in the window, at the right of the list and below the bar. */
const isShown = async (id) => {
  const [list, bar, heading] = await Promise.all([page.locator('.panes > .index'), page.locator('#top'), card(id).locator('h2')].map((part) => part.boundingBox()));
  return heading.x > list.x + list.width && heading.y >= bar.y + bar.height && heading.y + heading.height <= 800;
};

test('on a phone a long inbox is its list, which leads to one decision at a time', async () => {
  for (let n = 4; n < 7; n += 1) calls.push(await hold(n));
  await page.setViewportSize({ width: 375, height: 760 });
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  await until(() => lines().count(), 7);
  assert.ok(await page.evaluate(() => document.documentElement.scrollHeight) < 1_500);
  await fits(page, 'the list');
  await accessible(page, 'the list');
  await line(calls[5]).click();
  const approve = card(calls[5]).getByRole('button', { name: `Approve ${calls[5]}` });
  await approve.waitFor();
  assert.equal(await page.locator('.panes > .cards > .card:visible').count(), 1);
  await page.getByRole('link', { name: 'All decisions' }).click();
  await line(calls[0]).waitFor();
  assert.equal(await approve.isVisible(), false);
  await line(calls[5]).click();
  await approve.click();
  await until(async () => (await broker.call('coder', 'GET', `/approvals/${calls[5]}`)).state, 'approved');
  await line(calls[0]).waitFor();
  await page.setViewportSize({ width: 1500, height: 800 });
});

test('one card alone has a strong button', async () => {
  const strong = () => page.locator('.cards button.main').evaluateAll((all) => all.filter((one) => getComputedStyle(one).backgroundColor === getComputedStyle(document.body).color).length);
  await until(strong, 1);
  await card(calls[2]).focus();
  await until(strong, 1);
});

test('a line of the list opens its decision in the right pane, with the focus in it, and the way back leads to the one before', async () => {
  const [, second, , last] = calls;
  await line(last).click();
  await until(() => isShown(last), true);
  await until(focused, last);
  assert.equal(await line(last).getAttribute('aria-current'), 'true');
  await line(second).click();
  await until(() => isShown(second), true);
  await until(focused, second);
  assert.deepEqual(await lines().evaluateAll((all) => all.filter((one) => one.hasAttribute('aria-current')).map(({ hash }) => hash)), [`#${second}`]);
  // The list stays in the window, wherever the right pane is.
  assert.ok((await page.locator('.panes > .index').boundingBox()).y >= 0);
  await page.goBack();
  await until(() => isShown(last), true);
  await until(() => line(last).getAttribute('aria-current'), 'true');
  await page.goBack();
  assert.equal(new URL(page.url()).hash, '');
  await page.goBack();
  await page.waitForURL(`${broker.url}/`);
  await page.goForward();
  await page.waitForURL(`${broker.url}/inbox`);
  await until(() => lines().count(), calls.length);
});

test('a decision in the right pane brings the next one there, with the focus, and its line goes', async () => {
  const [first, second, third, last] = calls;
  await line(second).click();
  await until(focused, second);
  // No single key approves.
  await page.keyboard.press('a');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^Approve apr-\d+$/);
  await steadied(page);
  await page.keyboard.press('Enter');
  await card(second).waitFor({ state: 'detached' });
  await line(second).waitFor({ state: 'detached' });
  await until(focused, third);
  await until(() => isShown(third), true);
  assert.equal((await broker.call('coder', 'GET', `/approvals/${second}`)).state, 'approved');
  await page.keyboard.press('r');
  await page.keyboard.type('not this one');
  await page.keyboard.press('Enter');
  await card(third).waitFor({ state: 'detached' });
  await until(focused, last);
  await until(() => isShown(last), true);
  assert.equal((await broker.call('coder', 'GET', `/approvals/${third}`)).comment, 'not this one');
  // What another human decides meanwhile takes no focus.
  await ignore(first);
  await card(first).waitFor({ state: 'detached' });
  assert.equal(await focused(), last);
  // One alone needs no list.
  await until(() => page.locator('.panes > .index').count(), 0);
});

test('a decision opens on its own page, and after it the way back leads to an inbox without it', async () => {
  const [first, second] = calls;
  await card(first).getByRole('link', { name: first }).click();
  await page.waitForURL(new RegExp(`/approvals/${first}$`));
  await connected(page);
  await page.keyboard.press('r');
  await page.keyboard.press('Enter');
  const next = page.getByRole('link', { name: 'Next: coder asks to call Bash' });
  await next.waitFor();
  // The focus is on what comes next, so that Enter opens it.
  await until(() => page.evaluate(() => document.activeElement.classList.contains('next')), true);
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`/approvals/${second}$`));
  await page.goBack();
  await page.goBack();
  await page.waitForURL(/\/inbox$/);
  await until(() => card(first).count(), 0);
  await until(() => lines().count(), 3);
  await card(second).waitFor();
});

test('the two panes fit, and have nothing serious that axe finds, light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width: 1500, height: 800 });
    await line(calls[1]).click();
    await fits(page, 'the inbox');
    await accessible(page, `two panes, ${colorScheme}`);
    await page.setViewportSize({ width: 1024, height: 800 });
    assert.ok(await line(calls[1]).isVisible());
    await fits(page, 'the inbox');
    // One pane less is the same page.
    await page.setViewportSize({ width: 1023, height: 800 });
    assert.ok(!(await page.locator('.panes > .index').isVisible()));
    assert.ok(await card(calls[1]).isVisible());
  }
  await page.setViewportSize({ width: 1500, height: 800 });
});

test('a line of the list shows the command', async () => {
  await line(calls[2]).getByText('make 2').waitFor();
});

test('the keys never hide the head of a card that is higher than the window, and its buttons are in the window', async () => {
  for (const id of calls) await ignore(id);
  const tall = [];
  for (let n = 0; n < 3; n += 1) {
    const more = { command: `make ${n}\n${'# and more\n'.repeat(70)}` };
    tall.push((await broker.call('coder', 'POST', '/approvals', { tool: 'Bash', arguments: more })).id);
  }
  for (const width of [1500, 1024, 700]) {
    await page.setViewportSize({ width, height: 700 });
    await page.goto(`${broker.url}/inbox`);
    await connected(page);
    await until(() => page.locator('.panes > .cards > .card').count(), tall.length);
    /** The places of a card's head and of its first button, and whether nothing lies over them. */
    const seen = (id) => card(id).evaluate((entry) => [entry.querySelector('header h2'), entry.querySelector('.decide button')].every((part) => {
      const { left, top, bottom, height } = part.getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight && part.contains(document.elementFromPoint(left + 4, top + height / 2));
    }));
    for (const key of ['j', 'j', 'j', 'k', 'k']) {
      await page.keyboard.press(key);
      const id = await focused();
      await until(() => seen(id), true);
      assert.ok(tall.includes(id), id);
    }
    // In its middle the same holds.
    await page.mouse.move(width - 200, 400);
    await page.mouse.wheel(0, 500);
    await until(() => seen(tall[0]), true);
    await page.mouse.move(0, 0);
  }
  await page.setViewportSize({ width: 1500, height: 800 });
  for (const id of tall) await ignore(id);
});

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, beforeEach, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, menu, signedIn, steadied, until, watch } from './world.mjs';

let browser, broker, page, turn;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\ntask_questions_max = 100\n');
  await broker.agent('coder');
  await broker.agent('reviewer', { actions: ['review_code'] });
  await broker.ask('coder', 'LOGIN-1', 'Fix the login form');
  turn = (await broker.take('coder')).turn.id;
  page = await signedIn(browser, broker);
});

beforeEach(() => page.goto(`${broker.url}/inbox`));

after(async () => {
  assert.deepEqual(page.errors, []);
  await browser.close();
  await broker.end();
});

const raise = (message, options = []) => broker.call('coder', 'POST', '/escalations', { message, options });
const hold = (tool, args) => broker.call('coder', 'POST', '/approvals', { tool, arguments: args, reason: 'asked to' });
const card = (id, on = page) => on.locator(`#${id}`);
const flash = (on = page) => on.locator('#flash');

test('the printed link signs in once, and its secret leaves the address', async () => {
  const context = await browser.newContext();
  const other = await context.newPage();
  watch(other);
  const asked = [];
  other.on('request', (request) => asked.push(request.url()));
  await other.goto(broker.link);
  await other.waitForURL(`${broker.url}/`);
  const secret = broker.link.split('#')[1];
  assert.ok(asked.length > 2 && asked.every((url) => !url.split('#')[0].includes(secret)));
  await menu(other);
  await other.getByRole('button', { name: 'Sign out' }).click();
  await other.waitForURL(/\/sign-in$/);
  await other.goto(broker.link);
  await other.getByText('used already').waitFor();
  assert.deepEqual(other.errors, []);
  await context.close();
});

test('a question appears without a reload, and its answer resumes exactly that task', async () => {
  await connected(page);
  const { id } = await raise('To eu or us?', ['eu', 'us']);
  await card(id).getByText('To eu or us?').waitFor();
  await card(id).getByText('you asked coder').waitFor();
  await until(() => page.title(), '(1) Inbox · Lastword');
  await until(() => page.locator('#announcement').textContent(), '1 pending decision for you');
  await broker.call('coder', 'POST', `/turns/${turn}/finish`, { answer: 'waiting' });
  await card(id).getByRole('button', { name: 'us' }).click();
  await flash().getByText('coder continues').waitFor();
  await card(id).waitFor({ state: 'detached' });
  const delivery = await broker.take('coder');
  assert.equal(delivery.message.body, 'us');
  assert.equal(delivery.message.ref, 'LOGIN-1');
  turn = delivery.turn.id;
});

/** Has the pages of a browser keep the notifications that they raise, and be hidden as the test says. */
const listening = (context) => context.addInitScript(() => {
  window.raised = [];
  window.Notification = class {
    static permission = 'default';
    static async requestPermission() { return (this.permission = 'granted'); }
    constructor(title, { body }) { window.raised.push(`${title}: ${body}`); }
  };
  Object.defineProperty(document, 'hidden', { get: () => window.away === true });
});

test('a hidden page of a viewer says that an approver is waited for', async () => {
  broker.tokens.vera = (await broker.call('operator', 'POST', '/humans', { name: 'vera', role: 'viewer' })).token;
  const other = await signedIn(browser, broker, {}, 'vera');
  await listening(other.context());
  await other.goto(`${broker.url}/conversations`);
  await connected(other);
  await menu(other);
  await other.getByRole('button', { name: /^Notify/ }).click();
  await other.getByRole('button', { name: 'Notify: on', pressed: true }).waitFor();
  await other.evaluate(() => { window.away = true; });
  const { id } = await raise('Who decides it?');
  const raised = () => other.evaluate(() => window.raised);
  await until(async () => (await raised()).length, 1);
  assert.match((await raised())[0], /^Lastword: \d+ pending decisions? for an approver$/);
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'eu' });
  assert.deepEqual(other.errors, []);
  await other.context().close();
});

test('a hidden page notifies of what is new once that is switched on, and never before', async () => {
  const context = await browser.newContext({ storageState: await page.context().storageState() });
  await listening(context);
  const other = await context.newPage();
  watch(other);
  await other.goto(`${broker.url}/conversations`);
  await connected(other);
  const waiting = () => other.evaluate(() => Number(document.querySelector('#waiting').dataset.waiting));
  const raised = () => other.evaluate(() => window.raised);
  const before = await waiting();
  await other.evaluate(() => { window.away = true; });
  const first = await raise('<b>nobody</b> hears of it');
  await until(waiting, before + 1);
  assert.deepEqual(await raised(), []);
  await menu(other);
  const button = other.getByRole('button', { name: /^Notify/ });
  await button.click();
  await other.getByRole('button', { name: 'Notify: on', pressed: true }).waitFor();
  const second = await raise('<b>somebody</b> does');
  await until(async () => (await raised()).length, 1);
  assert.match((await raised())[0], new RegExp(`^Lastword: (1 pending decision|${before + 2} pending decisions) for you$`));
  await other.evaluate(() => { window.away = false; });
  const third = await raise('the page is looked at');
  await until(waiting, before + 3);
  await button.click();
  await other.getByRole('button', { name: 'Notify: off', pressed: false }).waitFor();
  assert.equal((await raised()).length, 1);
  for (const { id } of [first, second, third]) await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'eu' });
  assert.deepEqual(other.errors, []);
  await context.close();
});

test('an approval on one page updates another one', async () => {
  const other = await page.context().newPage();
  watch(other);
  await other.goto(`${broker.url}/inbox`);
  await Promise.all([connected(page), connected(other)]);
  const { id } = await hold('deploy', { to: 'eu' });
  await card(id).getByText('"to": "eu"').first().waitFor();
  await card(id, other).waitFor();
  await card(id).getByRole('button', { name: `Approve ${id}`, exact: true }).click();
  await card(id, other).waitFor({ state: 'detached' });
  assert.equal((await broker.call('coder', 'GET', `/approvals/${id}`)).state, 'approved');
  assert.deepEqual(other.errors, []);
  await other.close();
});

test('who answers second is told who was first, and with what', async () => {
  const { id } = await raise('Who is first?');
  const form = `#${id}-form`;
  await page.goto(`${broker.url}/inbox`);
  const sent = page.locator(form);
  await sent.waitFor();
  // A page that heard nothing: its hints are held back.
  await page.evaluate(() => document.querySelector('#main').removeAttribute('hx-trigger'));
  await page.route('**/*', (route) => (route.request().method() === 'GET' ? route.abort() : route.continue()));
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'I was' });
  await page.locator(`#${id}-answer`).fill('me');
  await sent.getByRole('button', { name: 'Answer' }).click();
  await flash().getByText('was already settled by operator: I was').waitFor();
  await page.unrouteAll({ behavior: 'wait' });
});

test('a rejection brings its reason to the agent', async () => {
  await connected(page);
  const { id } = await hold('rm', { path: '/' });
  await card(id).getByPlaceholder('Reason for the agent, if you reject').fill('never');
  await card(id).getByRole('button', { name: 'Reject' }).click();
  await flash().getByText('is rejected').waitFor();
  const seen = await broker.call('coder', 'GET', `/approvals/${id}`);
  assert.deepEqual([seen.state, seen.comment], ['rejected', 'never']);
});

test('what is typed, opened and focused outlives what happens meanwhile', async () => {
  const first = await raise('Take your time');
  const second = await hold('wait', { n: 1 });
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  await card(second.id).getByText(/^Reject with instructions(,| or)/).click();
  await card(first.id).getByPlaceholder('Your answer').fill('half an ans');
  await page.locator(`#${second.id}-reason`).focus();
  const third = await raise('Something else');
  await card(third.id).waitFor();
  assert.equal(await page.locator(`#${first.id}-answer`).inputValue(), 'half an ans');
  assert.ok(await page.locator(`#${second.id}-more`).evaluate((details) => details.open));
  assert.equal(await page.evaluate(() => document.activeElement.id), `${second.id}-reason`);
  for (const { id } of [first, third]) await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
  await broker.call('operator', 'POST', `/approvals/${second.id}/decision`, { decision: 'ignore' });
  await until(() => page.locator('.card').count(), 0);
});

test('a hostile text is shown and does nothing, and 200 kB of it are folded', async () => {
  const hostile = '</pre><img src=x onerror="window.hit=1"><script>window.hit=1</script>\u202eevil\u001b[2J';
  const short = await raise(hostile, ['<b onclick="hit=1">yes</b>']);
  const long = await raise(`${'All work and no play. '.repeat(10_000)}THE END`);
  await page.goto(`${broker.url}/inbox`);
  await card(short.id).getByText('onerror="window.hit=1"').waitFor();
  assert.match(await card(short.id).innerText(), /\\u\{202e\}evil\\u\{1b\}\[2J/);
  assert.equal(await page.locator('main img, main script').count(), 0);
  assert.equal(await page.evaluate(() => window.hit), undefined);
  const end = card(long.id).getByText('THE END');
  assert.equal(await end.isVisible(), false);
  const started = Date.now();
  await card(long.id).getByText('Show all (221 kB)').click();
  await end.scrollIntoViewIfNeeded();
  assert.ok(Date.now() - started < 3_000, 'the page froze');
  for (const { id } of [short, long]) await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
});

test('another site can send no form, even with the cookie of the session', async () => {
  const { id } = await raise('Safe?');
  const site = createServer((request, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(`<form method="post" action="${broker.url}/escalations/${id}/answer"><input name="answer" value="stolen"></form>
      <script>document.forms[0].submit()</script>`);
  });
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  const other = await page.context().newPage();
  const answered = other.waitForResponse((response) => response.url().endsWith(`/escalations/${id}/answer`));
  await other.goto(`http://127.0.0.1:${site.address().port}/`);
  assert.equal((await answered).status(), 403);
  assert.equal((await broker.call('operator', 'GET', `/escalations/${id}`)).state, 'open');
  await other.close();
  site.close();
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
});

test('a restart under an open page is a banner, and then all is as it was', async () => {
  const { id } = await raise('Are you still there?');
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  await page.locator(`#${id}-answer`).fill('half an ans');
  await broker.down();
  await page.getByText('The server is away. Reconnecting').waitFor();
  await card(id).getByRole('button', { name: 'Answer' }).click();
  await flash().getByText('The server did not answer').waitFor();
  assert.equal(await page.locator(`#${id}-answer`).inputValue(), 'half an ans');
  // A button keeps the focus or not, by how fast the request fails; while it has it, new cards wait behind the note.
  await page.locator(`#${id}-answer`).focus();
  await broker.up(new URL(broker.url).host);
  await page.locator('#banner').waitFor({ state: 'hidden' });
  const later = await raise('I am back');
  await card(later.id).waitFor();
  assert.equal(await page.locator(`#${id}-answer`).inputValue(), 'half an ans');
  await page.locator(`#${id}-answer`).pressSequentially('wer');
  await card(id).getByRole('button', { name: 'Answer' }).click();
  await flash().getByText('coder continues').waitFor();
  assert.equal((await broker.call('operator', 'GET', `/escalations/${id}`)).answer, 'half an answer');
  await broker.call('operator', 'POST', `/escalations/${later.id}/answer`, { answer: 'ok' });
});

test('a session that ends under an open page says so, and what is typed stays', async () => {
  await broker.agent('second', { kind: 'human' });
  const { id } = await raise('Still signed in?');
  const other = await signedIn(browser, broker, {}, 'second');
  await other.goto(`${broker.url}/inbox`);
  await connected(other);
  await other.locator(`#${id}-answer`).fill('half an ans');
  await broker.call('operator', 'POST', '/agents/second/token', {});
  const banner = other.locator('#banner');
  await banner.getByText('You are signed out.').waitFor();
  // The words about a server that is away come 400 ms after a stream ends, and not over these.
  await other.evaluate(() => new Promise((resolve) => setTimeout(resolve, 500)));
  assert.match(await banner.textContent(), /^You are signed out\./);
  assert.equal(await other.locator(`#${id}-answer`).inputValue(), 'half an ans');
  await other.goto(`${broker.url}/inbox`);
  await other.waitForURL(/\/sign-in\?next=/);
  await other.context().close();
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
});

test('a filter that finds nothing leads to Find with the same words', async () => {
  await broker.ask('reviewer', 'REFUND-1', 'Correct the page about refunds');
  await page.goto(`${broker.url}/conversations?q=refund`);
  await page.getByRole('button', { name: 'Find “refund”' }).click();
  await page.locator('#palette-list').getByRole('link', { name: /about refunds operator in REFUND-1/ }).waitFor();
  assert.equal(await page.locator('#palette-query').inputValue(), 'refund');
  await page.keyboard.press('Escape');
  // Opened otherwise, it is empty.
  await page.keyboard.press('Control+k');
  assert.equal(await page.locator('#palette-query').inputValue(), '');
});

test('filters stand in the address and survive a reload', async () => {
  await broker.ask('reviewer', 'DEPLOY-7', 'Look at the zebra crossing');
  await page.goto(`${broker.url}/conversations`);
  await page.getByLabel('Words').fill('zebra');
  await page.getByText('More filters').click();
  await page.getByLabel('To', { exact: true }).fill('reviewer');
  await page.getByLabel('State').selectOption('active');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.waitForURL(/q=zebra/);
  // A bookmark has the filters as its name.
  assert.equal((await page.title()).replace(/^\(\d+\) /, ''), 'Work: active, with zebra, to reviewer · Lastword');
  const rows = () => page.locator('.row').count();
  assert.equal(await rows(), 1);
  await page.reload();
  assert.equal(await rows(), 1);
  assert.equal(await page.getByLabel('Words').inputValue(), 'zebra');
  assert.equal(await page.getByLabel('State').inputValue(), 'active');
  assert.ok(await page.getByLabel('To', { exact: true }).isVisible(), 'a filter that applies is shown');
  // Live: a second one that passes the filters comes by itself.
  await connected(page);
  await broker.ask('reviewer', 'DEPLOY-8', 'Another zebra');
  await until(rows, 2);
  await page.getByRole('link', { name: 'DEPLOY-8' }).click();
  await page.getByRole('heading', { name: 'DEPLOY-8' }).waitFor();
});

test('a conversation grows while one looks, shows its refusals, and is paused by its human', async () => {
  await page.goto(`${broker.url}/conversations/LOGIN-1`);
  await connected(page);
  const { id } = await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'reviewer', body: 'Please review it' });
  await page.locator(`#${id}`).getByText('Please review it').waitFor();
  await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'coder', body: 'me' }).catch((error) => assert.ok(error.status / 100 >= 4));
  await page.locator('.badge', { hasText: 'refused' }).waitFor();
  for (const view of ['Waterfall', 'Log']) {
    await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: view }).click();
    await page.waitForURL(new RegExp(`view=${view.toLowerCase()}`));
  }
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.locator('.badge', { hasText: 'paused' }).waitFor();
  assert.equal((await broker.call('operator', 'GET', '/conversations/LOGIN-1')).state, 'paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.locator('.heading .badge', { hasText: /working|not connected|completed/ }).waitFor();
});

test('everything can be done with the keyboard alone', async () => {
  const question = await raise('By keys?');
  const call = await hold('type', { fast: true });
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  const focused = () => page.evaluate(() => document.activeElement.id);
  await page.keyboard.press('j');
  await until(focused, call.id);
  await page.keyboard.press('j');
  await until(focused, question.id);
  await page.keyboard.press('a');
  await until(focused, `${question.id}-answer`);
  await page.keyboard.type('yes');
  await page.keyboard.press('Enter');
  await page.keyboard.type('please');
  await page.keyboard.press('Control+Enter');
  await card(question.id).waitFor({ state: 'detached' });
  assert.equal((await broker.call('operator', 'GET', `/escalations/${question.id}`)).answer, 'yes\nplease');
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await until(focused, call.id);
  await page.keyboard.press('a');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^Approve apr-\d+$/);
  await steadied(page);
  await page.keyboard.press('Enter');
  await card(call.id).waitFor({ state: 'detached' });
  assert.equal((await broker.call('operator', 'GET', `/approvals/${call.id}`)).state, 'approved');
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('next and previous entry').waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('g');
  await page.keyboard.press('c');
  await page.waitForURL(/\/conversations$/);
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.name), 'q');
  await page.keyboard.press('Control+k');
  await page.keyboard.type('LOGIN-1');
  await page.locator('#palette-list a', { hasText: 'LOGIN-1' }).first().waitFor();
  await until(() => page.locator('#palette-list li').count(), 2);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/conversations\/LOGIN-1$/);
});

test('every page fits a window of 375 and has nothing serious that axe finds, light and dark', async () => {
  const { id } = await raise('Small?', ['yes', 'no', 'a much longer answer that says on and on what to do']);
  const held = await hold('deploy', { command: 'x'.repeat(300) });
  const paths = ['/', '/inbox', '/conversations', '/conversations?q=nothing+at+all', '/conversations/LOGIN-1', '/conversations/LOGIN-1?graph=true', '/conversations/LOGIN-1?view=log', '/messages/msg-9', '/sign-in', '/conversations/NONE'];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const path of paths) {
      await page.setViewportSize({ width: 375, height: 760 });
      await page.goto(broker.url + path);
      await fits(page, path);
      await page.setViewportSize({ width: 1200, height: 900 });
      await accessible(page, `${path} ${colorScheme}`);
    }
  }
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'ok' });
  await broker.call('operator', 'POST', `/approvals/${held.id}/decision`, { decision: 'ignore' });
});

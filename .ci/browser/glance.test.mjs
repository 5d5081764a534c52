// What a human reads at a glance: states, counts, times and words that must not mislead.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, menu, signedIn, until } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\ngrant_messages_max = 6\nturns_soft_max = 8\n');
  for (const name of ['coder', 'reviewer', 'idler', 'helper']) await broker.agent(name);
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const finish = (who, turn, answer, usage) => broker.call(who, 'POST', `/turns/${turn.id}/finish`, { answer, ...usage && { usage } });

test('an agent whose work a limit holds is held, on the list, its page and the graph, and not idle', async () => {
  await broker.ask('coder', 'HELD-1', 'Use it up');
  const { turn } = await broker.take('coder');
  for (const to of ['idler', 'reviewer']) await broker.call('coder', 'POST', '/messages', { type: 'request', to, body: 'a part' });
  await assert.rejects(broker.call('coder', 'POST', '/messages', { type: 'request', to: 'idler', body: 'more' }), /grant_messages/);
  // The turn ends, and the requests that nobody may take are still the coder's work.
  await finish('coder', turn, 'waiting');
  await page.goto(`${broker.url}/agents`);
  await connected(page);
  const row = page.locator('#a-idler');
  await row.getByText('held', { exact: true }).waitFor();
  await row.getByRole('link', { name: 'HELD-1' }).first().waitFor();
  assert.doesNotMatch(await row.innerText(), /\bidle\b/);
  await page.goto(`${broker.url}/agents/idler`);
  await page.locator('.heading .badge', { hasText: 'held' }).waitFor();
  await page.goto(`${broker.url}/graph`);
  await page.locator('.edges tr', { hasText: 'idler' }).getByText('held').first().waitFor();
});

test('the front page says what a lift gives, and its card what a stop takes', async () => {
  const { items } = await broker.call('operator', 'GET', '/incidents');
  const { id } = items.find((incident) => incident.ref === 'HELD-1');
  await page.goto(`${broker.url}/`);
  await page.locator(`#now-${id}`).getByText('A lift gives 6 more messages.').waitFor();
  await page.locator('#runs .work', { hasText: 'HELD-1' }).getByText('requested by you').waitFor();
  await page.getByRole('link', { name: `Lift or stop ${id}` }).click();
  await page.locator(`#${id}-stopped`).getByText(/Its open requests are cancelled for good/).waitFor();
  await page.locator(`#${id} .parked li`, { hasText: 'coder asked idler' }).getByRole('link', { name: 'a part' }).waitFor();
  await page.locator(`#${id}`).getByText('you asked').first().waitFor();
  // Nobody has for ever: a week after, its grant closes.
  assert.match(await page.locator(`#${id} header .countdown`).textContent(), /^(7 d|6 d 23 h) left$/);
  page.once('dialog', (dialog) => assert.match(dialog.message(), /cancelled for good/));
  await page.locator(`#${id}`).getByRole('button', { name: 'Stop', exact: true }).click();
  await page.locator('#flash').getByText('HELD-1 is stopped').waitFor();
  // What is stopped waits for nobody.
  for (const [path, entry] of [['/inbox', id], ['/', `now-${id}`]]) {
    await page.goto(broker.url + path);
    await connected(page);
    assert.equal(await page.locator(`#${entry}`).count(), 0, path);
    assert.equal(await page.locator('#waiting').getAttribute('data-waiting'), '0', path);
  }
  await page.goto(`${broker.url}/conversations`);
  await page.locator('#lifted summary').click();
  await page.locator('#lifted li', { hasText: id }).getByText('ended with its grant').waitFor();
});

test('counts of a conversation include its children, folded below it, and their closest limit', async () => {
  await broker.ask('coder', 'TALL-1', 'Have it checked');
  const { turn } = await broker.take('coder');
  await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'helper', body: 'check' });
  const below = await broker.take('helper');
  await finish('helper', below.turn, 'fine', { input_tokens: 900, output_tokens: 100 });
  await page.goto(`${broker.url}/conversations`);
  await connected(page);
  const row = page.locator('.row', { hasText: 'TALL-1' });
  const { counters } = await broker.call('operator', 'GET', '/conversations/TALL-1');
  await row.getByText(/^3 messages/).waitFor();
  assert.ok(counters.messages < 3, 'its own are fewer');
  await row.getByText('1 open').waitFor();
  await row.locator('.counts').getByText(/1\u202f000 tokens/).waitFor();
  await row.getByText('1 child conversation').click();
  await row.locator('.below').getByRole('link', { name: 'TALL-1/1' }).waitFor();
  // Notes count for the soft limit of the child alone, which is then closer to a limit than its parent.
  for (let n = 0; n < 5; n++) await broker.call('coder', 'POST', '/messages', { type: 'info', to: 'helper', ref: 'TALL-1/1', body: `note ${n}`, turn: turn.id });
  await row.locator('.limit').getByText(/^soft turn limit \d\/8$/).waitFor();
  await row.locator('.limit').getByText('in TALL-1/1').waitFor();
  await finish('coder', turn, 'checked');
  await page.goto(`${broker.url}/spend`);
  await page.getByText(/Child conversations are counted, too/).waitFor();
});

test('a conversation without open work has ended, and offers no stop at first sight', async () => {
  await broker.ask('helper', 'DONE-1', 'Do it');
  const { turn } = await broker.take('helper');
  await assert.rejects(broker.call('helper', 'POST', '/messages', { type: 'request', to: 'helper', body: 'you do it' }), /self_send/);
  await finish('helper', turn, 'did it');
  await page.goto(`${broker.url}/conversations/DONE-1`);
  await connected(page);
  await page.locator('.heading .badge', { hasText: 'completed' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Stop', exact: true }).isVisible(), false);
  // What a rule refused on the way is said beside it, here and in the list.
  await page.locator('.facts').getByText('1 refused').waitFor();
  await page.locator('#control summary').click();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.locator('.heading .badge', { hasText: 'paused' }).waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.locator('.heading .badge', { hasText: 'completed' }).waitFor();
  // A finished answer leaves no state of now on its edge.
  await page.goto(`${broker.url}/conversations/DONE-1?graph=true`);
  assert.equal(await page.locator('.edges td .badge').count(), 0);
});

test('a filter that is chosen applies at once, without its button', async () => {
  await page.goto(`${broker.url}/conversations`);
  await connected(page);
  await page.getByLabel('State').selectOption('ended');
  await page.waitForURL(/state=ended/);
  await page.locator('.row', { hasText: 'DONE-1' }).getByText('1 refused').waitFor();
  await until(() => page.locator('.row .what > .badge').allTextContents().then((all) => all.length > 0 && all.every((word) => /^(completed|partial|failed|timed out|cancelled|stopped)$/.test(word))), true);
});

test('buttons that answer are named apart, and the card says what a press and silence do', async () => {
  const asked = [];
  for (const ref of ['ASK-1', 'ASK-2']) {
    await broker.ask('helper', ref, 'Where to?');
    const { turn } = await broker.take('helper');
    asked.push(await broker.call('helper', 'POST', '/escalations', { message: `${ref}?`, options: ['eu', 'us'] }));
    await finish('helper', turn, 'waiting').catch(() => {});
  }
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  const names = await page.getByRole('button', { name: /^Answer esc-/ }).evaluateAll((all) => all.map((one) => one.ariaLabel));
  assert.ok(names.length >= 2 && new Set(names).size === names.length, `${names}`);
  for (const { id } of asked) {
    await page.locator(`#${id}`).getByText('If nobody answers in time, the task that asked ends.').waitFor();
    await page.locator(`#${id}`).getByText('Press an answer to send it, or write one.').waitFor();
    await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'eu' });
  }
});

test('a held call says how long an approval lasts, and the rule that allows it says how far it reaches', async () => {
  await broker.ask('coder', 'CALL-1', 'Bring it out');
  await broker.take('coder');
  const call = await broker.call('coder', 'POST', '/approvals', { tool: 'release', arguments: { version: '2' } });
  await page.goto(`${broker.url}/approvals/${call.id}`);
  await page.getByText('Once approved, the call must be made within 1 h.').waitFor();
  await page.goto(`${broker.url}/approvals/${call.id}/always`);
  await page.getByRole('heading', { name: 'Always allow coder to call release' }).waitFor();
  await page.getByText('call release with any version, and any other argument').waitFor();
  await broker.call('operator', 'POST', `/approvals/${call.id}/decision`, { decision: 'ignore' });
});

test('a room has a page that says what a room is, and a refused post names its room', async () => {
  await broker.call('operator', 'POST', '/rooms', { name: 'lounge', members: ['coder', 'helper'] });
  let refused = '';
  for (let n = 0; n < 9; n++) {
    const who = n % 2 ? 'coder' : 'helper';
    await broker.call(who, 'POST', '/rooms/lounge/messages', { body: `post ${n}` }).catch((error) => { refused = error.message; });
  }
  assert.match(refused, /turns_soft/);
  await page.goto(`${broker.url}/rooms`);
  await page.getByText('A room is a place for posts to several agents').waitFor();
  await page.getByRole('link', { name: 'lounge' }).click();
  await page.getByText('post 6').waitFor();
  await page.getByText(/posts by agents since a human spoke, refused ones included/).waitFor();
  await page.goto(`${broker.url}/limits#refused`);
  await page.locator('#refused li', { hasText: 'Too many agent messages' }).getByRole('link', { name: 'latest' }).click();
  await page.getByText('Too many agent messages without a human message: lounge').waitFor();
  await page.getByText(/refused from number 8 on; this is number \d+, refused ones included/).waitFor();
});

test('a human posts in a room whose agents are refused, and they go on', async () => {
  await page.goto(`${broker.url}/limits`);
  await page.locator('.shares li', { hasText: 'Soft turn limit' }).getByRole('link', { name: 'lounge' }).click();
  await page.waitForURL(/\/rooms\/lounge$/);
  await connected(page);
  await page.getByLabel('Post').fill('go on');
  await page.getByRole('button', { name: 'Post' }).click();
  await page.getByText('0 posts by agents since a human spoke').waitFor();
  assert.equal(await page.getByLabel('Post').inputValue(), '');
  await broker.call('coder', 'POST', '/rooms/lounge/messages', { body: 'thanks' });
  await page.getByText('thanks').waitFor();
  await page.setViewportSize({ width: 375, height: 700 });
  await accessible(page, 'a room');
  await fits(page, 'a room');
  await page.setViewportSize({ width: 1280, height: 860 });
});

test('agents are listed with what they spent, and text in a chart is readable on a phone', async () => {
  await broker.ask('idler', 'SPENT-1', 'be quick');
  const { turn } = await broker.take('idler');
  await broker.call('idler', 'POST', `/turns/${turn.id}/finish`, { answer: 'done', usage: { input_tokens: 900, output_tokens: 100, cost_usd: 0.25 } });
  await page.goto(`${broker.url}/agents`);
  await page.locator('#a-idler').getByText(/^1\u202f000 tokens, \$0\.25 today$/).waitFor();
  await page.goto(`${broker.url}/agents/idler`);
  await page.getByText(/^1\u202f000 tokens, \$0\.25 today$/).waitFor();
  await page.setViewportSize({ width: 375, height: 700 });
  await page.goto(`${broker.url}/spend`);
  const heights = await page.locator('svg.chart text').evaluateAll((all) => all.map((text) => text.getBoundingClientRect().height));
  assert.ok(Math.min(...heights) >= 11, `${heights}`);
  await page.setViewportSize({ width: 1280, height: 860 });
});

test('the chart of messages has a scale of hours', async () => {
  await page.goto(`${broker.url}/spend`);
  const texts = await page.locator('.panels svg.chart text').allTextContents();
  const hours = texts.filter((text) => /^\d\d:00$/.test(text));
  assert.equal(hours.length, 8, `${texts}`);
  await page.getByText('The last bar is the current hour.').waitFor();
});

test('the log of a conversation has clock times, and a message its exact time', async () => {
  await page.goto(`${broker.url}/conversations/DONE-1?view=log`);
  await page.getByText('Times are in your time zone (UTC).').waitFor();
  const times = await page.locator('.log time').allTextContents();
  assert.ok(times.length > 2 && times.every((text) => /^\d\d:\d\d:\d\d$/.test(text.trim())), `${times}`);
  await page.locator('.log li', { hasText: 'Do it' }).locator('a.seq').click();
  await page.getByText(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/).first().waitFor();
});

test('times are those of the reader\'s time zone, also after a change; the title has UTC, and so has the page without scripts', async () => {
  const storageState = await page.context().storageState();
  const context = await browser.newContext({ storageState, timezoneId: 'Asia/Kolkata' });
  const here = await context.newPage();
  const path = `${broker.url}/conversations/DONE-1?view=log`;
  await here.goto(path);
  await connected(here);
  await here.getByText('Times are in your time zone (Asia/Calcutta).').or(here.getByText('Times are in your time zone (Asia/Kolkata).')).waitFor();
  const shown = () => here.locator('.log time').evaluateAll((all) => all.map((time) => [time.dateTime, time.textContent, time.title]));
  const right = (times) => times.length > 2 && times.every(([at, text, title]) => {
    const local = new Date(Date.parse(at) + 5.5 * 3_600_000).toISOString();
    return text.endsWith(local.slice(11, 19)) && title === at.replace('T', ' ').replace('Z', ' UTC');
  });
  assert.ok(right(await shown()), `${await shown()}`);
  const before = (await shown()).length;
  await broker.ask('helper', 'DONE-1', 'And this');
  await until(async () => (await shown()).length > before, true);
  assert.ok(right(await shown()), `${await shown()}`);
  await context.close();
  const plain = await browser.newContext({ javaScriptEnabled: false, storageState });
  const bare = await plain.newPage();
  await bare.goto(path);
  await bare.getByText('Times are in UTC.').waitFor();
  assert.match(await bare.locator('.log time').first().textContent(), /\d\d:\d\d:\d\d UTC$/);
  await plain.close();
});

test('the banner of a paused workspace stays in view', async () => {
  await page.setViewportSize({ width: 1280, height: 500 });
  await broker.call('operator', 'POST', '/workspace/pause');
  try {
    await page.goto(`${broker.url}/limits`);
    await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
    assert.ok(await page.evaluate(() => window.scrollY) > 0);
    const box = await page.locator('#standing').boundingBox();
    assert.ok(box.y >= 0 && box.y + box.height < 200, JSON.stringify(box));
  } finally {
    await broker.call('operator', 'POST', '/workspace/resume');
  }
});

test('help and palette close by a button where there is no Escape', async () => {
  await page.setViewportSize({ width: 375, height: 700 });
  await page.goto(`${broker.url}/`);
  await menu(page);
  await page.getByRole('button', { name: 'Keys and terms' }).click();
  const help = page.locator('#help');
  await help.getByText('the account that your request opens').waitFor();
  // It stays in view however far one scrolled.
  await help.evaluate((dialog) => { dialog.scrollTop = dialog.scrollHeight; });
  await help.getByRole('button', { name: 'Close' }).click();
  await help.waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: /^Find/ }).click();
  await page.locator('#palette').getByRole('button', { name: 'Close' }).click();
  await page.locator('#palette').waitFor({ state: 'hidden' });
});

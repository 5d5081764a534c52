// The pictures of the work: waterfall, graph and spending, and what finds it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, until } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\nagent_day_tokens_max = 10000\n');
  for (const name of ['coder', 'tester', 'ops']) await broker.agent(name);
  await broker.ask('coder', 'PIC-1', 'Draw the waterfall');
  const coder = await broker.take('coder');
  await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'tester', body: 'Check <it>' });
  const tester = await broker.take('tester');
  await broker.call('tester', 'POST', '/messages', { type: 'request', to: 'coder', body: 'You do it' }).catch(() => {});
  await broker.call('tester', 'POST', `/turns/${tester.turn.id}/finish`, { answer: 'fine', usage: { input_tokens: 9_000, output_tokens: 2_000, cost_usd: 1.5, models: [{ model: 'opus', tokens: 9_000, cost_usd: 1.25 }, { model: 'haiku', tokens: 1_500, cost_usd: 0.2 }] } });
  await broker.call('coder', 'POST', '/approvals', { tool: 'deploy', arguments: { command: 'make deploy' } });
  await broker.call('coder', 'POST', `/turns/${coder.turn.id}/progress`, { usage: { input_tokens: 500, output_tokens: 0, cost_usd: 0.25 } });
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

test('the waterfall nests requests, hatches the wait for a human, and shows tokens and money', async () => {
  await page.goto(`${broker.url}/conversations/PIC-1?view=waterfall`);
  await connected(page);
  const names = page.locator('.waterfall .name');
  assert.deepEqual(await names.allInnerTexts(), ['coder Draw the waterfall', 'tester Check <it>']);
  assert.ok(await names.nth(1).evaluate((row) => row.classList.contains('in1')));
  assert.equal(await page.locator('rect.turn').count(), 2);
  assert.equal(await page.locator('rect.human').count(), 1);
  assert.equal(await page.locator('text.cut').count(), 1);
  const sums = page.locator('.waterfall .sum');
  assert.match(await sums.nth(1).innerText(), /11\u202f000 tokens, \$1\.50/);
  assert.match(await sums.nth(0).innerText(), /^open · 500 tokens, \$0\.25/);
  // A bar below another begins no earlier.
  const bars = await page.locator('rect.whole').evaluateAll((all) => all.map((bar) => bar.getBoundingClientRect().x));
  assert.ok(bars[1] >= bars[0]);
  const width = () => page.locator('.waterfall svg.rows').evaluate((svg) => svg.getBoundingClientRect().width);
  const before = await width();
  await page.getByRole('link', { name: 'Zoom in' }).click();
  await page.waitForURL(/zoom=2/);
  assert.equal(Math.round(await width()), Math.round(before * 2));
  // The names stay when one scrolls to the right.
  await page.locator('.waterfall').evaluate((area) => { area.scrollLeft = area.scrollWidth; });
  assert.ok(await names.first().isVisible());
  const [area, name] = [await page.locator('.waterfall').boundingBox(), await names.first().boundingBox()];
  assert.ok(Math.abs(area.x - name.x) < 3, `${JSON.stringify({ area, name })}`);
  // The history plays: at its begin all but the first bars are dimmed.
  await page.locator('[data-scrub]').fill('0');
  assert.ok(await page.locator('.later').count() > 0);
});

test('the graph is shown above each view, and old addresses lead to what shows the same', async () => {
  await page.goto(`${broker.url}/conversations/PIC-1?view=timeline`);
  await page.waitForURL(/\?view=waterfall$/);
  await page.goto(`${broker.url}/conversations/PIC-1?view=graph`);
  await page.waitForURL(/\?view=tree&graph=true$/);
  assert.deepEqual(await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allTextContents(), ['Tree', 'Waterfall', 'Log']);
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Log' }).click();
  await page.waitForURL(/view=log&graph=true/);
  await page.locator('.graph svg').waitFor();
  await page.locator('.log li').first().waitFor();
  await page.getByRole('button', { name: 'Graph', exact: true }).click();
  await page.waitForURL((url) => !url.search.includes('graph'));
  assert.equal(await page.locator('.graph svg').count(), 0);
});

test('the graph shows who asks whom, what each agent does, and where a rule cut, and moves no more under reduced motion', async () => {
  for (const path of ['/graph', '/conversations/PIC-1?graph=true']) {
    await page.emulateMedia({ reducedMotion: 'no-preference' });
    await page.goto(broker.url + path);
    await page.locator('.graph circle.peer.asks').waitFor();
    assert.equal(await page.locator('.graph circle.cross').count(), 1);
    const edge = page.locator('.graph path.edge.open');
    assert.equal(await edge.count(), 1);
    const animation = () => edge.evaluate((path) => getComputedStyle(path).animationName);
    assert.equal(await animation(), 'flow');
    await page.emulateMedia({ reducedMotion: 'reduce' });
    assert.equal(await animation(), 'none');
    const row = page.getByRole('row', { name: /^tester coder/ });
    await row.getByText('rule D5').waitFor();
    await page.getByRole('row', { name: /^operator coder waiting for you 1 open/ }).waitFor();
  }
  // It follows what happens.
  await page.goto(`${broker.url}/graph`);
  await connected(page);
  await broker.ask('ops', 'PIC-2', 'Join in');
  await page.getByRole('row', { name: /^operator ops/ }).waitFor();
});

test('a conversation is played step by step up to where a rule cut it, and the film is one file', async () => {
  await page.goto(`${broker.url}/conversations/PIC-1?graph=true`);
  await connected(page);
  const film = page.locator('#film img');
  assert.equal(await film.evaluate((picture) => picture.complete && picture.naturalWidth > 0), false, 'it begins when it is asked for');
  await page.getByText('Play', { exact: true }).click();
  await until(() => film.evaluate((picture) => picture.complete && picture.naturalWidth > 0), true);
  // Unfolded again, it begins again.
  const again = page.waitForRequest(/\/film\?/);
  for (let n = 0; n < 2; n += 1) await page.getByText('Play', { exact: true }).click();
  await again;
  const text = await (await page.request.get(`${broker.url}/conversations/PIC-1/film`)).text();
  // As who saved it sees it, with nothing else beside it.
  const context = await browser.newContext();
  const saved = await context.newPage();
  await saved.setContent(text);
  const seen = (seconds) => saved.evaluate((at) => {
    const svg = document.querySelector('svg');
    svg.pauseAnimations();
    svg.setCurrentTime(at);
    const shown = (part) => part.checkVisibility() && getComputedStyle(part).opacity === '1';
    const lines = [...svg.querySelectorAll('.caption')].filter(shown).map((line) => [...line.querySelectorAll('tspan')].map((part) => part.textContent));
    return { lines, isCut: shown(svg.querySelector('circle.cross').parentElement) };
  }, seconds);
  const end = { lines: [['tester asks coder', '✕ refused: the recipient waits for the sender\'s final answer']], isCut: true };
  assert.deepEqual(await seen(0), { lines: [['operator asks coder', 'Draw the waterfall']], isCut: false });
  assert.deepEqual(await seen(1_000), end);
  // Without motion it is its last picture.
  await saved.emulateMedia({ reducedMotion: 'reduce' });
  assert.deepEqual(await seen(0), end);
  await context.close();
});

test('the spending is by agent and grant, and a budget that is used up says when', async () => {
  for (const over of ['1h', '24h', '7d']) {
    await page.goto(`${broker.url}/spend?over=${over}`);
    assert.match(await page.locator('.heading').innerText(), /11\u202f500 tokens, \$1\.75/);
  }
  const agents = page.locator('.spenders section', { hasText: 'By agent' }).locator('li');
  assert.match(await agents.nth(0).innerText(), /^tester\s+11\u202f000 tokens, \$1\.50\s+opus 9\u202f000 tokens, \$1\.25, haiku 1\u202f500 tokens, \$0\.20/);
  assert.match(await agents.nth(1).innerText(), /^coder\s+500 tokens, \$0\.25/);
  const grants = page.locator('.spenders section', { hasText: 'By grant' }).locator('li');
  assert.match(await grants.nth(0).innerText(), /^PIC-1 grant-1\s+11\u202f500 tokens, \$1\.75/);
  const models = page.locator('.spenders section', { hasText: 'By model' }).locator('li');
  assert.match(await models.nth(0).innerText(), /^opus\s+9\u202f000 tokens, \$1\.25/);
  assert.match(await models.nth(1).innerText(), /^haiku\s+1\u202f500 tokens, \$0\.20/);
  assert.match(await models.nth(2).innerText(), /^no model reported\s+1\u202f000 tokens, \$0\.30/);
  const budget = page.locator('.budgets article', { hasText: 'tester' });
  await budget.getByText(/Used up at \d\d:\d\d/).waitFor();
  assert.ok(await budget.locator('line.limit').count());
  assert.equal((await page.goto(`${broker.url}/spend?over=2h`)).status(), 400);
});

test('the palette finds parents before children, words in messages, and every id that is printed', async () => {
  await page.goto(`${broker.url}/`);
  const typed = async (text) => {
    await page.keyboard.press('Control+k');
    await page.locator('#palette-query').fill(text);
  };
  await typed('pic-1');
  const links = () => page.locator('#palette-list a').allInnerTexts();
  await until(async () => (await links())[0], 'PIC-1 Draw the waterfall');
  assert.match((await links())[1], /^PIC-1\/1 Check <it>/);
  await page.keyboard.press('Escape');
  await typed('waterfall');
  await page.locator('#palette-list a', { hasText: 'Draw the waterfall operator in PIC-1' }).waitFor();
  await page.keyboard.press('Escape');
  for (const [id, where] of [['grant-1', /\/conversations\/PIC-1$/], ['turn-1', /\/messages\/msg-\d+$/], ['apr-1', /\/approvals\/apr-1$/]]) {
    await page.goto(`${broker.url}/messages/${id}`);
    assert.match(page.url(), where);
  }
});

test('a conversation opens beside the list where there is room, and on its own page otherwise', async () => {
  await page.setViewportSize({ width: 1500, height: 900 });
  await page.goto(`${broker.url}/conversations`);
  await connected(page);
  await page.locator('.row').getByRole('link', { name: 'PIC-1', exact: true }).first().click();
  const beside = page.getByRole('complementary', { name: 'PIC-1' });
  await beside.getByRole('link', { name: 'Waterfall', exact: true }).waitFor();
  await page.waitForURL(/\/conversations\?open=PIC-1$/);
  await page.locator('.row.chosen', { hasText: 'PIC-1' }).waitFor();
  const [list, detail] = [await page.locator('[data-beside]').boundingBox(), await beside.boundingBox()];
  assert.ok(detail.x >= list.x + list.width, JSON.stringify({ list, detail }));
  await accessible(page, 'a list beside a conversation');
  await page.reload();
  await beside.waitFor();
  await page.setViewportSize({ width: 1200, height: 900 });
  await beside.waitFor({ state: 'hidden' });
  await page.locator('.row').getByRole('link', { name: 'PIC-1', exact: true }).first().click();
  await page.waitForURL(/\/conversations\/PIC-1$/);
});

test('each of these pages fits its window and has nothing serious that axe finds, light and dark', async () => {
  const paths = ['/graph', '/spend', '/rooms', '/conversations/PIC-1?view=waterfall', '/conversations/PIC-1?graph=true', '/conversations/PIC-1', '/approvals/apr-1'];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const path of paths) {
      await page.goto(broker.url + path);
      for (const width of [375, 1280, 1920]) {
        await page.setViewportSize({ width, height: 800 });
        await fits(page, `${path} at ${width}`);
      }
      await accessible(page, `${path} ${colorScheme}`);
    }
  }
});

// Small things of many pages, one by one.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, until, watch } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start(`[limits]
task_questions_max = 1000
approvals_open_max = 100
agent_day_tokens_max = 1800000
`);
  for (const name of ['coder', 'reviewer']) await broker.agent(name, { turns_max: 6 });
  await broker.ask('coder', 'SMALL-1', 'Make calls');
  await broker.take('coder');
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
});

// Whatever failed, nothing stays that would keep the command from its end.
after(async () => {
  await browser?.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const hold = async (tool, args) => (await broker.call('coder', 'POST', '/approvals', { tool, arguments: args })).id;
const state = async (id) => (await broker.call('coder', 'GET', `/approvals/${id}`)).state;
const ignore = (id) => broker.call('operator', 'POST', `/approvals/${id}/decision`, { decision: 'ignore' });
const go = async (path) => {
  await page.goto(broker.url + path);
  await connected(page);
};
const plainly = async (use) => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await page.context().storageState() });
  await use(await context.newPage());
  await context.close();
};

test('to resume has a dialog of its own, in which nothing stops', async () => {
  await go('/');
  await broker.call('operator', 'POST', '/workspace/pause', {});
  await page.getByRole('link', { name: 'Resume…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Resume the workspace' });
  await dialog.getByRole('button', { name: 'Resume' }).waitFor();
  assert.equal(await dialog.getByRole('button', { name: /Stop/ }).count(), 0);
  await accessible(page, 'the dialog to resume');
  await dialog.getByRole('button', { name: 'Resume' }).click();
  await page.locator('#flash').getByText('The workspace is resumed').waitFor();
  await dialog.waitFor({ state: 'hidden' });
  await until(() => page.getByRole('link', { name: 'Resume…' }).count(), 0);
});

test('while a rejection is on its way, the call can\'t be approved', async () => {
  const id = await hold('rm', { n: 1 });
  await go('/inbox');
  let answer;
  const asked = new Promise((resolve) => { answer = resolve; });
  await page.route(/\/reject$/, async (route) => { await asked; await route.abort(); });
  await page.locator(`#${id}-reject button`).click();
  await until(() => page.locator(`#${id}-approve button`).isDisabled(), true);
  answer();
  await until(() => page.locator(`#${id}-approve button`).isDisabled(), false);
  await page.unroute(/\/reject$/);
  assert.equal(await state(id), 'pending');
  await ignore(id);
});

test('once the server is back, nothing says that it did not answer', async () => {
  const id = await hold('rm', { n: 2 });
  await go('/inbox');
  await broker.down();
  await page.getByText('The server is away. Reconnecting').waitFor();
  await page.locator(`#${id}-approve button`).click();
  await page.locator('#flash').getByText('The server did not answer').waitFor();
  await broker.up(new URL(broker.url).host);
  await page.locator('#flash').getByText(/^The server is back/).waitFor();
  assert.deepEqual(await page.getByText('did not answer').evaluateAll((all) => all.map((one) => one.outerHTML)), []);
  await ignore(id);
});

test('signing out in one tab is seen in the others, and a session that ended leads to the form', async () => {
  const one = await signedIn(browser, broker);
  const two = await one.context().newPage();
  watch(two);
  await two.goto(`${broker.url}/agents`);
  await connected(two);
  await one.locator('[popovertarget=menu]').click();
  await one.getByRole('button', { name: 'Sign out' }).click();
  await two.waitForURL(/\/sign-in\?next=%2Fagents$/);
  assert.deepEqual([one.errors, two.errors], [[], []]);
  await one.context().close();
});

test('without scripts the next page says what came of a decision, once', async () => {
  const id = await hold('rm', { n: 3 });
  await plainly(async (plain) => {
    await plain.goto(`${broker.url}/inbox`);
    await plain.locator(`#${id}-approve button`).click();
    await plain.getByRole('button', { name: 'Yes, do it' }).click();
    await plain.locator('#flash').getByText(`${id} of coder is approved.`).waitFor();
    assert.equal(await state(id), 'approved');
    await plain.reload();
    assert.equal(await plain.locator('#flash .flash').count(), 0);
  });
});

test('without scripts a page asks before work is stopped', async () => {
  await broker.ask('reviewer', 'STOP-1', 'Work on');
  const stopped = async () => (await broker.call('operator', 'GET', '/conversations/STOP-1')).state;
  await plainly(async (plain) => {
    await plain.goto(`${broker.url}/conversations/STOP-1`);
    await plain.getByRole('button', { name: 'Stop', exact: true }).click();
    await plain.getByText('Stop STOP-1?').waitFor();
    assert.equal(await stopped(), 'active');
    await plain.getByRole('link', { name: 'No, back' }).click();
    await plain.waitForURL(/\/conversations\/STOP-1$/);
    await plain.getByRole('button', { name: 'Stop', exact: true }).click();
    await plain.getByRole('button', { name: 'Yes, do it' }).click();
    await plain.locator('#flash').getByText('STOP-1 is stopped.').waitFor();
    assert.equal(await stopped(), 'stopped');
  });
});

test('the palette finds limits and refusals, and Escape closes it at once', async () => {
  await go('/');
  await page.keyboard.press('Control+k');
  await page.locator('#palette-query').fill('depth');
  await page.locator('#palette-list').getByRole('link', { name: /limit depth_max$/ }).waitFor();
  await page.locator('#palette-list').getByRole('link', { name: /refusal depth_cap$/ }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('#palette').waitFor({ state: 'hidden' });
});

test('what passes for a host is marked, a list shows no secret of an address, and an emoji is no attack', async () => {
  const id = await hold('WebFetch', { url: 'https://api.vendor.example@203.0.113.7:8443/v1?token=s3cr3t', note: '\u{1f469}\u200d\u{1f4bb}' });
  await go('/inbox');
  const call = page.locator(`#${id} .call`);
  assert.deepEqual(await call.locator('.t-odd').allTextContents(), ['api.vendor.example@']);
  assert.equal(await call.locator('.address .t-word').textContent(), '203.0.113.7:8443');
  assert.ok(await call.getByText('token=s3cr3t').isVisible());
  assert.ok(await call.getByText('\u{1f469}\u200d\u{1f4bb}').isVisible());
  for (const path of ['/', '/conversations/SMALL-1']) {
    await page.goto(broker.url + path);
    await page.getByText('token=•••').first().waitFor();
    assert.equal(await page.getByText('s3cr3t').count(), 0, path);
  }
  await ignore(id);
});

test('a question has its words as a title, and a long text of the tree says how long it is', async () => {
  const { id } = await broker.call('coder', 'POST', '/escalations', { message: '# Which **region**?', options: ['eu'] });
  await go('/');
  await page.locator('#waits').getByText('Which region?').waitFor();
  assert.equal(await page.getByText('**').count(), 0);
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'eu' });
  await broker.ask('coder', 'SMALL-1', `Begin ${'and more words '.repeat(2_000)}`);
  await go('/conversations/SMALL-1');
  await page.locator('.tree').getByRole('link', { name: /^Show all of msg-/ }).click();
  await page.getByText('Show all (31 kB)').waitFor();
});

test('a field for the turns of an agent has the number that holds for it', async () => {
  await go('/agents/reviewer#own-limits');
  assert.equal(await page.getByLabel('Turns at once').getAttribute('placeholder'), '6');
});

test('on a wide screen each page begins at the same place, and lines are as wide as they are read', async () => {
  await page.setViewportSize({ width: 1920, height: 900 });
  const begins = new Set();
  for (const path of ['/', '/inbox', '/conversations', '/conversations/SMALL-1', '/agents', '/agents/coder', '/spend', '/limits', '/schedules', '/team', '/graph', '/workspace']) {
    await go(path);
    begins.add(await page.locator('main h1').first().evaluate((title) => title.getBoundingClientRect().left));
    const lines = await page.locator('main > p').evaluateAll((all) => all.map((line) => line.getBoundingClientRect().width));
    if (['/limits', '/agents/coder', '/workspace'].includes(path)) assert.ok(lines.every((width) => width <= 1080), `${path}: ${lines}`);
  }
  assert.equal(begins.size, 1, `${[...begins]}`);
  await page.setViewportSize({ width: 1200, height: 900 });
});

test('a countdown has a colour in its last five minutes alone, and the script keeps to it', async () => {
  const id = await hold('deploy', { n: 5 });
  await go('/inbox');
  const colour = () => page.locator(`#${id} header .countdown`).evaluate((time) => getComputedStyle(time).color);
  const lasting = async (ms) => {
    await page.locator(`#${id} header .countdown`).evaluate((time, at) => { time.dateTime = at; }, new Date(Date.now() + ms).toISOString());
  };
  const marked = (near, soon) => page.locator(`#${id} header .countdown${near}${soon}`).waitFor();
  await lasting(1_200_000);
  await marked(':not(.near)', ':not(.soon)');
  const calm = await colour();
  await lasting(240_000);
  await marked('.near', ':not(.soon)');
  const near = await colour();
  await lasting(30_000);
  await marked('.near', '.soon');
  assert.equal(new Set([calm, near, await colour()]).size, 3);
  await ignore(id);
});

test('nothing is cut at 768 and 375, whatever the names', async () => {
  const id = await hold(`mcp__${'a_tool_with_a_long_name_'.repeat(4)}`, { n: 4 });
  const long = 'an-agent-with-a-name-that-is-as-long-as-a-name-of-an-agent-can-b';
  await broker.agent(long);
  await broker.ask(long, 'A-REFERENCE-THAT-IS-RATHER-LONG-AS-WELL-1234567890', 'Work on this, which has a long first line that goes on and on');
  const { turn } = await broker.take(long);
  await broker.call(long, 'POST', '/usage', { turn: turn.id, input_tokens: 1_570_020, output_tokens: 0 }).catch(() => {});
  for (const width of [768, 375]) {
    await page.setViewportSize({ width, height: 900 });
    for (const path of ['/', '/inbox', `/approvals/${id}`, '/conversations', `/conversations/A-REFERENCE-THAT-IS-RATHER-LONG-AS-WELL-1234567890`, '/agents', `/agents/${long}`, '/spend', '/team']) {
      await go(path);
      await fits(page, `${path} at ${width}`);
      const cut = await page.locator('main .row > *, main .card header > *').evaluateAll((cells) => cells
        .filter((cell) => cell.checkVisibility() && cell.clientWidth > 1 && (cell.scrollWidth > cell.clientWidth + 1 || cell.getBoundingClientRect().right > cell.parentElement.getBoundingClientRect().right + 1))
        .filter((cell) => getComputedStyle(cell).display !== 'inline')
        .map((cell) => cell.outerHTML.slice(0, 200)));
      assert.deepEqual(cut, [], `${path} at ${width}`);
    }
  }
  await page.setViewportSize({ width: 1200, height: 900 });
  await ignore(id);
});

test('an agent whose program is gone is not connected in the list, on its page, which says how it comes back, and in the graph', async () => {
  await broker.agent('ghost');
  await broker.ask('ghost', 'GHOST-1', 'Anybody there?');
  await go('/agents');
  assert.equal(await page.locator('#a-ghost .badge').innerText(), 'not connected');
  assert.equal(await page.locator('#a-ghost .badge.bad').count(), 1);
  // What a human should see stands above what is as it should be.
  const names = await page.locator('.row.agent b').allInnerTexts();
  assert.ok(names.indexOf('ghost') < names.indexOf('reviewer'), `${names}`);
  await go('/agents/ghost');
  assert.equal(await page.locator('.heading .badge').innerText(), 'not connected');
  await page.locator('#silent').getByText("hasn't asked for work since the server started, and has sent no message").waitFor();
  await page.locator('#silent .rule').getByText('lastword claude --as ghost').waitFor();
  await go('/');
  await page.locator('#runs .work', { hasText: 'ghost' }).getByText('not connected').waitFor();
  await go('/graph');
  assert.equal(await page.locator('circle.peer.down').count(), 1);
});

test('the graph comes before what its signs mean, and what it says stands above its lines', async () => {
  await go('/graph');
  const order = await page.locator('.graph, #legend').evaluateAll((all) => all.map((one) => one.id || one.className));
  assert.deepEqual(order, ['graph', 'legend']);
  assert.ok(!(await page.locator('#legend .legend').isVisible()));
  await page.locator('#legend summary').click();
  await page.getByText('larger: more tokens').waitFor();
  const halo = await page.locator('.graph text').first().evaluate((text) => getComputedStyle(text).paintOrder);
  assert.match(halo, /^stroke/);
});

test('a command that destroys stands out of a script, and numbers are shown to the digit', async () => {
  const steps = Array.from({ length: 43 }, (_, n) => `echo ${n} && true`);
  const id = await hold('Bash', { command: [...steps, 'rm -rf "${X:-/}"/*'].join('\n') });
  await go('/inbox');
  assert.deepEqual(await page.locator(`#${id} .call .t-danger`).allTextContents(), ['rm -rf "${X:-/}"/*']);
  const response = await fetch(`${broker.url}/v1/approvals`, {
    method: 'POST',
    headers: { authorization: `Bearer ${broker.tokens.coder}`, 'content-type': 'application/json' },
    body: '{"tool": "pay", "arguments": {"amount": 12345678901234567890123, "rate": 0.10}}',
  });
  const { id: exact } = await response.json();
  await go('/inbox');
  assert.match(await page.locator(`#${exact} .call`).innerText(), /"amount": 12345678901234567890123,\s+"rate": 0\.10/);
  for (const one of [id, exact]) await ignore(one);
});

test('what failed is dismissed with one click, and all in the list with two', async () => {
  for (const n of [1, 2, 3]) {
    await broker.ask('reviewer', `FAIL-${n}`, `Try ${n}`);
    const { turn } = await broker.take('reviewer');
    await broker.call('reviewer', 'POST', `/turns/${turn.id}/finish`, { status: 'failed', answer: 'no' });
  }
  await go('/');
  const line = (n) => page.locator('#wrong li', { hasText: `Try ${n}` });
  await line(3).getByRole('button', { name: /^Dismiss/ }).click();
  await page.locator('#flash').getByText('1 request is dismissed.').waitFor();
  await line(3).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: /^Dismiss these/ }).click();
  await line(1).waitFor({ state: 'detached' });
  await line(2).waitFor({ state: 'detached' });
});

test('a workspace that is resumed is nowhere said to be stopped', async () => {
  await broker.call('operator', 'POST', '/workspace/stop');
  await go('/agents');
  await page.locator('#standing').getByText('The workspace is stopped').waitFor();
  await page.evaluate(() => {
    window.both = 0;
    const look = () => {
      const [said, stands] = ['#flash', '#standing'].map((part) => document.querySelector(part)?.textContent ?? '');
      if (/is resumed/.test(said) && /is stopped/.test(stands)) window.both += 1;
      requestAnimationFrame(look);
    };
    look();
  });
  await page.getByRole('link', { name: 'Resume…' }).click();
  await page.locator('#resume-resume button').click();
  await page.locator('#flash').getByText('The workspace is resumed.').waitFor();
  await page.locator('#standing p').waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => window.both), 0);
});
